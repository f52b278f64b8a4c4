"""Sketches hold counts: enough to see a change, nothing to read a prompt from."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.telemetry.scripts import SCRIPTS, script_of
from serving.telemetry.signals import bucket_counts, pooled, repetition
from serving.telemetry.sketches import (
    KEPT_STREAMS,
    KEPT_WINDOWS,
    LEAST_REQUESTS,
    WINDOW_REQUESTS,
    WINDOW_SECONDS,
    Observation,
    Sketches,
    Stream,
)

STREAM = Stream("m", "d" * 64, "/v1/completions", "default")
SEEN = Observation(
    prompt_ids=(5, 6, 7),
    output_ids=(1, 2, 3, 4, 1, 2, 3, 4),
    prompt_script="latin",
    output_script="han",
    outcome="ok",
    finish_reason="stop",
    latency_seconds=1.5,
    ttft_seconds=0.25,
    token_seconds=None,
)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sketches(clock: Clock) -> Sketches:
    return Sketches(clock)


def windows(sketches: Sketches) -> list[dict[str, Any]]:
    return [window for stream in sketches.as_json()["streams"] for window in stream["windows"]]


def add(sketches: Sketches, count: int, seen: Observation = SEEN, stream: Stream = STREAM) -> None:
    for _ in range(count):
        sketches.add(stream, seen)


def test_a_full_window_says_what_its_requests_were_like(sketches: Sketches) -> None:
    add(sketches, WINDOW_REQUESTS)
    (window,) = windows(sketches)
    definitions = sketches.as_json()["signals"]
    assert window["requests"] == WINDOW_REQUESTS
    edges = definitions["latency_seconds"]["edges"]
    (position,) = [n for n, count in enumerate(window["counts"]["latency_seconds"]) if count]
    assert edges[position - 1] < 1.5 <= edges[position]
    scripts = dict(zip(SCRIPTS, window["counts"]["output_script"], strict=True))
    assert scripts["han"] == WINDOW_REQUESTS
    assert sum(window["counts"]["prompt_ids"]) == 3 * WINDOW_REQUESTS
    assert sum(window["counts"]["token_seconds"]) == 0, "an answer without a second token"


@pytest.mark.parametrize("requests", [1, LEAST_REQUESTS - 1])
def test_few_requests_are_not_shown_however_old(
    sketches: Sketches, clock: Clock, requests: int
) -> None:
    add(sketches, requests)
    clock.now += 100 * WINDOW_SECONDS
    assert windows(sketches) == []


def test_an_old_window_is_shown_once_it_has_enough(sketches: Sketches, clock: Clock) -> None:
    add(sketches, LEAST_REQUESTS)
    assert windows(sketches) == []
    clock.now += WINDOW_SECONDS
    assert [window["requests"] for window in windows(sketches)] == [LEAST_REQUESTS]


def test_streams_are_kept_apart_and_what_is_kept_is_bounded(sketches: Sketches) -> None:
    add(sketches, (KEPT_WINDOWS + 5) * WINDOW_REQUESTS)
    assert len(windows(sketches)) == KEPT_WINDOWS
    assert windows(sketches)[0]["number"] == 5
    for number in range(KEPT_STREAMS):
        add(sketches, 1, stream=STREAM._replace(digest=f"{number:064}"))
    shown = sketches.as_json()["streams"]
    assert len(shown) == KEPT_STREAMS
    assert STREAM.digest not in [stream["digest"] for stream in shown]


def test_the_order_of_tokens_leaves_no_trace(sketches: Sketches) -> None:
    other = Sketches(Clock())
    backwards = replace(SEEN, prompt_ids=SEEN.prompt_ids[::-1])
    add(sketches, WINDOW_REQUESTS)
    add(other, WINDOW_REQUESTS, backwards)
    assert json.dumps(sketches.as_json()) == json.dumps(other.as_json())


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=200))
def test_every_token_falls_into_one_bucket(ids: list[int]) -> None:
    counts = bucket_counts(ids)
    assert counts.sum() == len(ids) and len(counts) == 256
    assert abs(pooled(counts)).max() <= 1000


def test_ids_that_follow_each_other_fall_into_different_buckets() -> None:
    assert (bucket_counts(range(256)) > 0).sum() > 200


@pytest.mark.parametrize(
    ("ids", "expected"),
    [([], None), ([1, 2, 3], None), ([1, 2, 3, 4], 0.0), ([7] * 8, 0.8), (list(range(50)), 0.0)],
)
def test_repetition_is_the_share_of_4_grams_seen_before(
    ids: list[int], expected: float | None
) -> None:
    assert repetition(ids) == (expected if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("", "none"),
        ("123 !?", "none"),
        ("Hello", "latin"),
        ("Grüße aus Köln", "latin"),
        ("Привет, мир", "cyrillic"),
        ("Καλημέρα", "greek"),
        ("مرحبا", "arabic"),
        ("שלום", "hebrew"),
        ("नमस्ते", "indic"),
        ("สวัสดี", "thai"),
        ("こんにちは", "kana"),
        ("안녕하세요", "hangul"),
        ("服务器 GPU 坏了吗", "han"),
        ("Hello Hello Hello Hello Hello Hello Hello 好", "latin"),
    ],
)
def test_the_script_of_a_text(text: str, script: str) -> None:
    assert script_of(text) == script


@given(st.text(max_size=300))
def test_every_text_has_a_script(text: str) -> None:
    assert script_of(text) in SCRIPTS
