"""``POST /canary`` of the admin API: fixed prompts, answered greedily, with log probabilities.

Goes to the engine that is current, past admission and past every metric and sketch: asking
how the model is must not change what its traffic looks like.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, cast
from uuid import uuid4

import msgspec
from anyio import to_thread

from serving.engine.messages import SamplingParams, TokenLogprobs, TokenOutput
from serving.hub.errors import EngineUnavailableError
from serving.hub.hub import Hub
from serving.hub.loaded import LoadedEngine

TOP_LOGPROBS = 5


class CanaryRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Body of ``POST /canary``."""

    model: str
    prompts: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=64)]
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=256)]
    at_once: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    """Prompts under way at a time."""


async def ask_canary(hub: Hub, request: CanaryRequest) -> dict[str, Any]:
    """Answer every prompt on one version of the model.

    Returns:
        ``digest`` and ``load_id`` (its record in the registry tells the software), ``device``,
        ``dtype``, and ``answers``: for each prompt ``token_ids``, ``logprobs`` of these (nats),
        and ``top_ids``, ``top_logprobs`` at each position.

    Raises:
        IronworksError: the model is not served here, or has no engine now.
    """
    turns = asyncio.Semaphore(request.at_once)

    async def ask(engine: LoadedEngine, prompt: str) -> dict[str, Any]:
        async with turns:
            return await _answer(engine, prompt, request.max_tokens)

    async with hub.lease(request.model) as engine:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(engine, prompt)) for prompt in request.prompts]
        return {
            "digest": engine.digest,
            "load_id": engine.record.load_id,
            "device": engine.facts.ready.device,
            "dtype": engine.facts.ready.dtype,
            "answers": [task.result() for task in tasks],
        }


async def _answer(engine: LoadedEngine, prompt: str, max_tokens: int) -> dict[str, Any]:
    def prompt_ids() -> list[int]:
        codec = engine.codec
        if codec.has_chat_template:
            return codec.render_chat([{"role": "user", "content": prompt}])
        return codec.encode(prompt)

    ids = await to_thread.run_sync(prompt_ids)
    sampling = SamplingParams(max_tokens=max_tokens, top_logprobs=TOP_LOGPROBS)
    # The hub's iterator is a generator: closing it is what cancels.
    outputs = cast(
        AsyncGenerator[TokenOutput, None],
        engine.generate(f"canary-{uuid4().hex[:12]}", ids, sampling),
    )
    token_ids: list[int] = []
    logprobs: list[TokenLogprobs] = []
    reason: str | None = None
    async with aclosing(outputs):
        async for output in outputs:
            token_ids += output.token_ids
            if output.logprobs is not None:
                logprobs.append(output.logprobs)
            reason = output.finish_reason
    if reason not in ("stop", "length"):
        raise EngineUnavailableError(
            "the engine gave the canary up: it is being drained", where=engine.name
        )
    return {
        "token_ids": token_ids,
        "logprobs": [one.chosen for one in logprobs],
        "top_ids": [one.top_ids for one in logprobs],
        "top_logprobs": [one.top for one in logprobs],
    }
