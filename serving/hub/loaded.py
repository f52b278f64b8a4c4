"""One version on one live engine, and who holds it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from registry.store import Version
from serving.engine.messages import EngineStats, Ready, SamplingParams, TokenOutput
from serving.hub.engine_client import EngineClient
from serving.hub.load_record import LoadRecord
from serving.hub.work import EngineProgress
from serving.text.codec import TextCodec

SHUTDOWN_GRACE_SECONDS = 5.0
"""How long an engine that was asked to exit may take before it is killed."""


@dataclass(frozen=True)
class LoadFacts:
    """What a finished load tells about itself."""

    ready: Ready
    seconds: dict[str, float]
    """By phase, and ``total`` from spawn to ready."""


class LoadedEngine:
    """A verified, recorded, warm engine; implements ``protocol.LoadedModel``."""

    def __init__(
        self,
        version: Version,
        client: EngineClient,
        codec: TextCodec,
        record: LoadRecord,
        facts: LoadFacts,
    ) -> None:
        self.source = version
        self.codec = codec
        self.facts = facts
        self.record = record
        self._client = client
        self._leases = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def name(self) -> str:
        """Name of the model in the registry."""
        return self.source.model

    @property
    def version(self) -> str:
        """Version within the model."""
        return self.source.version

    @property
    def digest(self) -> str:
        """sha256 of the manifest, hex."""
        return self.source.digest

    @property
    def short(self) -> str:
        """First 12 hex digits of the digest."""
        return self.source.short

    @property
    def max_model_len(self) -> int:
        """Longest prompt plus output, tokens."""
        return self.facts.ready.max_model_len

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a sequence."""
        return self.facts.ready.eos_token_ids

    @property
    def created(self) -> int:
        """Unix seconds of the registration."""
        return self.source.registered_us // 1_000_000

    @property
    def pid(self) -> int:
        """Process id of the engine."""
        return self._client.pid

    @property
    def stats(self) -> EngineStats | None:
        """Latest statistics of the engine."""
        return self._client.stats

    def progress(self) -> EngineProgress:
        """Whether the engine gets on with its work."""
        return self._client.work.progress(self.name)

    @property
    def leases(self) -> int:
        """How many requests hold this engine."""
        return self._leases

    @property
    def death(self) -> str | None:
        """Why the engine is gone, None while it lives."""
        return self._client.death

    def generate(
        self, request_id: str, token_ids: Sequence[int], sampling: SamplingParams
    ) -> AsyncIterator[TokenOutput]:
        """See :meth:`serving.hub.protocol.LoadedModel.generate`."""
        return self._client.generate(request_id, token_ids, sampling)

    def acquire(self) -> None:
        """Count one more holder."""
        self._leases += 1
        self._idle.clear()

    def release(self) -> None:
        """Count one holder less."""
        self._leases -= 1
        if self._leases == 0:
            self._idle.set()

    async def wait_idle(self, seconds: float) -> int:
        """Wait until nobody holds it, at most ``seconds``; how many still do."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            pass
        return self._leases

    async def died(self) -> str:
        """Wait until the engine is gone; why."""
        return await self._client.died()

    async def unload(self, reason: str) -> None:
        """End the engine process and record it: the only release of memory that always works.

        An engine that had died before is recorded as failed, since that is what happened.
        """
        death = self.death
        if death is None:
            await self._client.shutdown(SHUTDOWN_GRACE_SECONDS)
            await self.record.unloaded(reason)
        else:
            await self.record.failed("serving", f"the engine process {death}")
