"""The load client: the same prompts, the same clock, for our replica and for every peer.

Every request streams, so that time to first token (TTFT) and the gaps between tokens are
the client's own measurement and not what a server says about itself.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import statistics
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import aiohttp

Workload = Literal["unique", "prefix"]
Message = dict[str, str]

TOPICS = (
    "the water cycle",
    "how bread rises",
    "why leaves change colour",
    "the history of the bicycle",
    "how a lighthouse works",
    "the life of a honeybee",
    "how glass is made",
    "what causes tides",
    "the rules of chess",
    "how vaccines work",
    "the route of the Silk Road",
    "how to plant tomatoes",
    "what a violin is made of",
    "why the sky is blue",
    "how trains stay on rails",
    "the phases of the Moon",
    "how paper is recycled",
    "what makes a good photograph",
    "how rivers shape valleys",
    "the invention of printing",
    "how batteries store energy",
    "why cats purr",
    "what a compass does",
    "how cheese is aged",
    "the parts of a flower",
    "how to read a map",
    "what an eclipse is",
    "how bridges carry load",
    "why bread goes stale",
    "how to tie a bowline knot",
    "the planets of the solar system",
    "how coral reefs form",
)


@dataclass
class Sample:
    """One request as its client saw it; times in seconds, ``status`` 0 if none came back."""

    failure: str = ""
    status: int = 0
    model_version: str = ""
    ttft: float = 0.0
    total: float = 0.0
    gaps: list[float] = field(default_factory=list)
    completion_tokens: int = 0
    prompt_tokens: int = 0


@dataclass(frozen=True)
class Figures:
    """One run of one server at one concurrency; latencies in milliseconds."""

    clients: int
    requests: int
    failed: int
    first_failure: str
    wall_seconds: float
    output_tokens_per_second: float
    mean_prompt_tokens: float
    ttft_ms_p50: float
    ttft_ms_p95: float
    itl_ms_p50: float
    itl_ms_p99: float


def prompts(workload: Workload, count: int, seed: int) -> Iterator[list[Message]]:
    """Chat messages for ``count`` requests; the same seed gives every server the same ones.

    ``unique`` prompts share nothing but the chat template; ``prefix`` prompts share a
    system message of about 560 tokens, which is what a prefix cache is for.
    """
    rng = random.Random(seed)
    rules = " ".join(
        f"Rule {i}: when a visitor asks about {TOPICS[i]}, be brief, name one fact, "
        "and give one example from everyday life."
        for i in range(18)
    )
    shared = f"You answer questions for visitors of a science museum. House rules: {rules}"
    for i in range(count):
        first, second = rng.sample(TOPICS, 2)
        if workload == "prefix":
            yield [
                {"role": "system", "content": shared},
                {"role": "user", "content": f"Question {i}: tell me about {first}."},
            ]
        else:
            text = (
                f"({i}-{rng.randrange(10**6)}) Write a long, detailed explanation of {first}, "
                f"and then compare it with {second}. Explain it for a curious reader who knows "
                "nothing about the subject, step by step, with several examples."
            )
            yield [{"role": "user", "content": text}]


def percentile(values: Sequence[float], fraction: float) -> float:
    """Nearest-rank percentile in milliseconds of values in seconds; 0 for none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(fraction * len(ordered)))] * 1000, 1)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, object]]:
    async for line in response.content:
        if line.startswith(b"data:"):
            data = line[5:].strip()
            if data == b"[DONE]":
                return
            yield json.loads(data)


async def stream_chat(
    session: aiohttp.ClientSession,
    url: str,
    model: str,
    messages: list[Message],
    max_tokens: int,
    request_id: str = "",
) -> Sample:
    """Send one streaming chat request and time it; a failure is in the sample, never raised.

    Args:
        session: of the client.
        url: where ``/v1`` is.
        model: name it is served by.
        messages: the conversation.
        max_tokens: the most it may write.
        request_id: header ``x-request-id``, by which the replica's log names it.
    """
    sample = Sample()
    headers = {"x-request-id": request_id} if request_id else {}
    body = {
        "model": model,
        "messages": messages,
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    started = time.perf_counter()
    latest = 0.0
    chunks = 0
    try:
        async with session.post(
            f"{url}/v1/chat/completions", json=body, headers=headers
        ) as response:
            sample.status = response.status
            sample.model_version = response.headers.get("x-model-version", "")
            if response.status != 200:
                sample.failure = f"{response.status}: {(await response.text())[:200]}"
                return sample
            async for event in _events(response):
                if "error" in event:
                    raise ValueError(str(event["error"]))
                usage = event.get("usage")
                if isinstance(usage, dict):
                    sample.completion_tokens = int(usage["completion_tokens"])
                    sample.prompt_tokens = int(usage["prompt_tokens"])
                choices = event.get("choices")
                if isinstance(choices, list) and choices and choices[0]["delta"].get("content"):
                    now = time.perf_counter()
                    chunks += 1
                    if latest:
                        sample.gaps.append(now - latest)
                    else:
                        sample.ttft = now - started
                    latest = now
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError) as error:
        sample.failure = f"{type(error).__name__}: {str(error)[:200]}"
    sample.total = time.perf_counter() - started
    sample.completion_tokens = sample.completion_tokens or chunks
    return sample


async def _run(
    url: str,
    model: str,
    workload: Workload,
    clients: int,
    requests: int,
    max_tokens: int,
    seed: int,
    timeout: float,
) -> Figures:
    samples: list[Sample] = []
    work = prompts(workload, requests, seed)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    limits = aiohttp.ClientTimeout(total=timeout)
    async with aiohttp.ClientSession(timeout=limits, connector=connector) as session:
        for messages in prompts(workload, 1, seed + 1):
            await stream_chat(session, url, model, messages, 4)

        async def client() -> None:
            for messages in work:
                samples.append(await stream_chat(session, url, model, messages, max_tokens))

        started = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(clients)))
        wall = time.perf_counter() - started
    good = [sample for sample in samples if not sample.failure]
    bad = [sample.failure for sample in samples if sample.failure]
    gaps = list(itertools.chain.from_iterable(sample.gaps for sample in good))
    return Figures(
        clients=clients,
        requests=requests,
        failed=len(bad),
        first_failure=bad[0] if bad else "",
        wall_seconds=round(wall, 2),
        output_tokens_per_second=round(sum(s.completion_tokens for s in good) / wall, 1),
        mean_prompt_tokens=round(statistics.mean(s.prompt_tokens for s in good), 1) if good else 0,
        ttft_ms_p50=percentile([s.ttft for s in good], 0.5),
        ttft_ms_p95=percentile([s.ttft for s in good], 0.95),
        itl_ms_p50=percentile(gaps, 0.5),
        itl_ms_p99=percentile(gaps, 0.99),
    )


def drive(
    url: str,
    model: str,
    *,
    workload: Workload,
    clients: int,
    requests: int,
    max_tokens: int = 64,
    seed: int = 7,
    timeout: float = 300.0,
) -> Figures:
    """Send ``requests`` chat requests from ``clients`` concurrent clients and sum them up.

    One unmeasured request goes first. A failed request is counted, never retried.
    """
    return asyncio.run(_run(url, model, workload, clients, requests, max_tokens, seed, timeout))
