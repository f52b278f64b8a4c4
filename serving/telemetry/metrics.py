"""What ``/metrics`` shows of requests and tokens; the engines' own state is in `engines`.

The names ``generate_tokens_total``, ``gpu_memory_used_bytes``, ``model_load_time_seconds``,
``kv_cache_hit_rate`` and ``prefill_latency_seconds`` are those of the article this product
follows; the rest carries the prefix ``ironworks_`` and vLLM's suffixes, units and buckets.
Label values come from the registry or from fixed lists, never from a client.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from serving.hub.protocol import ModelHub
from serving.telemetry.buckets import (
    FIRST_TOKEN_SECONDS,
    PER_TOKEN_SECONDS,
    REQUEST_SECONDS,
    token_counts,
)
from serving.telemetry.engines import EngineCollector

CONTENT_TYPE = CONTENT_TYPE_LATEST
LARGEST_TOKENS = 131_072
"""Upper end of the token-count buckets."""

_MODEL = ("model_name",)


class ServingMetrics:
    """The metrics of one replica, in a registry of their own.

    Args:
        hub: whose models and engine statistics are read at each scrape.
    """

    def __init__(self, hub: ModelHub) -> None:
        # One extra time series per counter that nothing here reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        registry.register(EngineCollector(hub))

        self.generate_tokens = Counter(
            "generate_tokens",
            "Tokens generated",
            ("model", "endpoint"),
            registry=registry,
        )
        self.prefill_latency = Histogram(
            "prefill_latency_seconds",
            "From the first prefill step of a request to its first token",
            ("model",),
            buckets=FIRST_TOKEN_SECONDS,
            registry=registry,
        )
        self.prompt_tokens = self._counter("prompt_tokens", "Prompt tokens taken in")
        self.generation_tokens = self._counter("generation_tokens", "Tokens generated")
        self.request_success = self._counter(
            "request_success", "Sequences that ended", "finished_reason"
        )
        self.admission_rejections = self._counter(
            "admission_rejections", "Requests refused before any work", "reason"
        )
        self.first_token = self._histogram(
            "time_to_first_token_seconds", "Arrival to first token", FIRST_TOKEN_SECONDS
        )
        self.inter_token = self._histogram(
            "inter_token_latency_seconds", "Between outputs of a sequence", PER_TOKEN_SECONDS
        )
        self.per_token = self._histogram(
            "request_time_per_output_token_seconds",
            "Mean time of the tokens after the first",
            PER_TOKEN_SECONDS,
        )
        self.e2e = self._histogram(
            "e2e_request_latency_seconds", "Arrival to last token", REQUEST_SECONDS
        )
        self.queue_time = self._histogram(
            "request_queue_time_seconds", "Waiting at the engine", REQUEST_SECONDS
        )
        self.prefill_time = self._histogram(
            "request_prefill_time_seconds", "First prefill step to first token", REQUEST_SECONDS
        )
        self.decode_time = self._histogram(
            "request_decode_time_seconds", "First to last token", REQUEST_SECONDS
        )
        self.prompt_length = self._histogram(
            "request_prompt_tokens", "Prompt length, tokens", token_counts(LARGEST_TOKENS)
        )
        self.generation_length = self._histogram(
            "request_generation_tokens", "Answer length, tokens", token_counts(LARGEST_TOKENS)
        )
        self.http_requests = Counter(
            "ironworks_http_requests",
            "HTTP responses by route and status (499: the client hung up)",
            ("endpoint", "status"),
            registry=registry,
        )

    def render(self) -> bytes:
        """Everything in Prometheus' text format (`CONTENT_TYPE`)."""
        return generate_latest(self.registry)

    def _counter(self, name: str, help: str, *labels: str) -> Counter:
        return Counter(f"ironworks_{name}", help, (*_MODEL, *labels), registry=self.registry)

    def _histogram(self, name: str, help: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"ironworks_{name}", help, _MODEL, buckets=buckets, registry=self.registry)
