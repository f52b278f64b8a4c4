"""A hub whose engines say what a test tells them to; everything else of the product is real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from registry.errors import NotFoundError
from serving.engine.messages import EngineStats, SamplingParams, TokenOutput
from serving.hub.protocol import ModelCard, ReadyState
from serving.hub.work import EngineProgress
from serving.text.codec import TextCodec

DIGEST = "0123456789abcdef" * 4
NAME = "smollm2-135m"


@dataclass
class ScriptedModel:
    """Answers with given tokens, one a step, and notes what became of each request."""

    codec: TextCodec
    answer: list[int] = field(default_factory=list)
    final_reason: str = "stop"
    name: str = NAME
    version: str = "v1"
    digest: str = DIGEST
    max_model_len: int = 256
    eos_token_ids: tuple[int, ...] = (2,)
    created: int = 1_764_000_000
    held: bool = False
    """While true, the engine stands still after its first token."""
    before: Callable[[int], None] | None = None
    """Called before step ``n``; what it raises is raised by the engine."""
    seen: list[tuple[tuple[int, ...], SamplingParams]] = field(default_factory=list)
    cancelled: int = 0
    running: int = 0

    @property
    def short(self) -> str:
        return self.digest[:12]

    async def generate(
        self, request_id: str, token_ids: Sequence[int], sampling: SamplingParams
    ) -> AsyncGenerator[TokenOutput, None]:
        self.seen.append((tuple(token_ids), sampling))
        self.running += 1
        finished = False
        try:
            tokens = self.answer[: sampling.max_tokens]
            reason = self.final_reason if len(self.answer) <= sampling.max_tokens else "length"
            for step, token in enumerate(tokens):
                if self.before is not None:
                    self.before(step)
                await asyncio.sleep(0)
                while step == 1 and self.held:
                    await asyncio.sleep(0.002)
                first = step == 0
                yield TokenOutput(
                    request_id,
                    (token,),
                    None,
                    queue_seconds=0.001 if first else None,
                    prefill_seconds=0.002 if first else None,
                )
            finished = True
            yield TokenOutput(request_id, (), reason)  # type: ignore[arg-type]
        finally:
            self.running -= 1
            self.cancelled += not finished


@dataclass
class ScriptedHub:
    """One model, whose failures a test can choose."""

    model: ScriptedModel
    refusal: Exception | None = None
    state: ReadyState = field(default_factory=lambda: ReadyState(True))
    leases: int = 0
    stalled_seconds: float = 0.0

    @asynccontextmanager
    async def lease(self, model: str) -> AsyncIterator[ScriptedModel]:
        if self.refusal is not None:
            raise self.refusal
        if model != self.model.name:
            raise NotFoundError("this replica does not serve that model", fix="see /v1/models")
        self.leases += 1
        try:
            yield self.model
        finally:
            self.leases -= 1

    def models(self) -> list[ModelCard]:
        return [
            ModelCard(
                name=self.model.name,
                version=self.model.version,
                digest=self.model.digest,
                created=self.model.created,
                state="ready",
                max_model_len=self.model.max_model_len,
                device="cpu",
                weight_bytes=1000,
                load_seconds={"read": 0.5, "warmup": 0.25, "total": 1.0},
            )
        ]

    def stats(self) -> dict[str, EngineStats]:
        return {
            self.model.name: EngineStats(
                steps=7,
                running=self.model.running,
                waiting=0,
                kv_tokens_used=10,
                kv_tokens_total=40,
                device_memory_bytes=123456,
                prefix_query_tokens=8,
                prefix_hit_tokens=2,
                integrity_errors=0,
            )
        }

    def ready(self) -> ReadyState:
        return self.state

    def progress(self) -> list[EngineProgress]:
        return [EngineProgress(self.model.name, self.model.running, 7, self.stalled_seconds, 0.0)]
