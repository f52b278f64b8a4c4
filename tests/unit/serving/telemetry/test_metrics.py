"""Metrics by the exact names that dashboards ask for, with values a person can check."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from serving.engine.messages import TokenOutput
from serving.telemetry.buckets import FIRST_TOKEN_SECONDS, token_counts
from serving.telemetry.meter import SequenceMeter
from serving.telemetry.metrics import ServingMetrics
from serving.text.codec import TextCodec
from tests.unit.serving.api.scripted import DIGEST, NAME, ScriptedHub, ScriptedModel

CHAT = "/v1/chat/completions"


@pytest.fixture
def metrics(codec: TextCodec) -> ServingMetrics:
    return ServingMetrics(ScriptedHub(ScriptedModel(codec)))


def samples(metrics: ServingMetrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def value(metrics: ServingMetrics, name: str, **labels: str) -> float:
    return samples(metrics)[name, frozenset(labels.items())]


def meter(metrics: ServingMetrics) -> SequenceMeter:
    return SequenceMeter(metrics, model=NAME, endpoint=CHAT, prompt_tokens=11, arrived=0.0)


def test_the_articles_five_names_carry_what_they_say(metrics: ServingMetrics) -> None:
    sequence = meter(metrics)
    sequence.output(TokenOutput("r", (1, 2), None, queue_seconds=0.5, prefill_seconds=0.03))
    sequence.output(TokenOutput("r", (3,)))
    assert value(metrics, "generate_tokens_total", model=NAME, endpoint=CHAT) == 3
    assert value(metrics, "prefill_latency_seconds_count", model=NAME) == 1
    assert value(metrics, "prefill_latency_seconds_bucket", model=NAME, le="0.02") == 0
    assert value(metrics, "prefill_latency_seconds_bucket", model=NAME, le="0.04") == 1
    assert value(metrics, "gpu_memory_used_bytes", device="cpu") == 123456
    assert value(metrics, "model_load_time_seconds", model=NAME) == 1.0
    assert value(metrics, "kv_cache_hit_rate", model=NAME) == 0.25


def test_the_fields_standard_set_is_there(metrics: ServingMetrics) -> None:
    sequence = meter(metrics)
    sequence.output(TokenOutput("r", (1,), None, queue_seconds=0.5, prefill_seconds=0.03))
    sequence.output(TokenOutput("r", (2,)))
    sequence.finish("length")
    one_model = {"model_name": NAME}
    for name, expected in {
        "num_requests_running": 0,
        "num_requests_waiting": 0,
        "kv_cache_usage_perc": 0.25,
        "prefix_cache_queries_total": 8,
        "prefix_cache_hits_total": 2,
        "prompt_tokens_total": 11,
        "generation_tokens_total": 2,
        "time_to_first_token_seconds_count": 1,
        "inter_token_latency_seconds_count": 1,
        "request_time_per_output_token_seconds_count": 1,
        "e2e_request_latency_seconds_count": 1,
        "request_queue_time_seconds_sum": 0.5,
        "request_prefill_time_seconds_sum": 0.03,
        "request_decode_time_seconds_count": 1,
        "request_prompt_tokens_sum": 11,
        "request_generation_tokens_sum": 2,
        "weight_load_bytes_per_second": 2000,
        "engine_restarts_total": 0,
    }.items():
        assert value(metrics, f"ironworks_{name}", **one_model) == expected, name
    finished = {"finished_reason": "length", **one_model}
    assert value(metrics, "ironworks_request_success_total", **finished) == 1
    loaded = {"phase": "read", **one_model}
    assert value(metrics, "ironworks_startup_time_seconds", **loaded) == 0.5
    version = {"model_version": DIGEST[:12], **one_model}
    assert value(metrics, "ironworks_model_ready", **version) == 1


def test_tokens_of_a_sequence_that_never_finished_count(metrics: ServingMetrics) -> None:
    meter(metrics).output(TokenOutput("r", (1, 2, 3)))
    assert value(metrics, "ironworks_generation_tokens_total", model_name=NAME) == 3
    assert not any(name == "ironworks_request_success_total" for name, _ in samples(metrics))


def test_two_replicas_in_one_process_do_not_share_counts(codec: TextCodec) -> None:
    one, other = (ServingMetrics(ScriptedHub(ScriptedModel(codec))) for _ in range(2))
    meter(one)
    assert value(one, "ironworks_prompt_tokens_total", model_name=NAME) == 11
    assert not any(name == "ironworks_prompt_tokens_total" for name, _ in samples(other))


def test_buckets_are_increasing() -> None:
    assert token_counts(1000) == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
    for buckets in (FIRST_TOKEN_SECONDS, token_counts(131072)):
        assert list(buckets) == sorted(set(buckets))
