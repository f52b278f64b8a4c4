"""The audit trail of one load, written from the event loop without blocking it.

All writes of a replica go through one thread, in order. That order is what makes a
cancelled load safe: its ``failed`` is queued behind a ``started`` that may still be under
way, so that no started load is left without an end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import structlog

from registry.audit import LogHead
from registry.errors import IronworksError
from registry.loads import LoadIdentity
from registry.store import Registry

_log = structlog.get_logger(__name__)

T = TypeVar("T")
_Write = Callable[[Registry, int], LogHead | None]


class Recorder:
    """The one thread through which a replica writes to the registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="registry")

    async def call(self, function: Callable[[Registry], T]) -> T:
        """Run ``function`` in turn; once queued it runs even if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        return await asyncio.shield(
            loop.run_in_executor(self._thread, lambda: function(self._registry))
        )

    async def close(self) -> None:
        """Wait for what is queued and end the thread."""
        await asyncio.to_thread(self._thread.shutdown)


class LoadRecord:
    """One load's row and events. Before ``ready`` a failure to write raises; after it, is logged.

    Each event's head of the log is written to the replica's own log, which thereby bears
    witness that nothing before it was altered or cut off later.

    A load that can't be recorded must not serve; one that serves already is worth more
    to its users than to the log, and its lease simply lapses there.
    """

    def __init__(self, recorder: Recorder, digest: str) -> None:
        self._recorder = recorder
        self._digest = digest
        self._load_id: int | None = None
        self._ended = False

    @property
    def load_id(self) -> int | None:
        """Id of the load in the registry, None until ``started`` is on record."""
        return self._load_id

    async def started(self, identity: LoadIdentity) -> None:
        """Record that an engine is about to read this version.

        Raises:
            DatabaseError: the registry can't be written.
        """

        def write(registry: Registry) -> None:
            ticket = registry.loads.started(self._digest, identity)
            self._load_id = ticket.load_id
            self._witness(ticket.log_head)

        await self._recorder.call(write)

    async def verified(self, files: Mapping[str, str], seconds: Mapping[str, float]) -> None:
        """Record the digests of the bytes that were read (path → sha256)."""
        await self._write(lambda r, load: r.loads.verified(load, files=files, seconds=seconds))

    async def ready(self, seconds: Mapping[str, float]) -> None:
        """Record that the engine can serve; seconds by phase."""
        await self._write(lambda r, load: r.loads.ready(load, seconds=seconds))

    async def retired(self) -> None:
        """Record that new requests go elsewhere while running ones end here."""
        await self._try("load.retired", lambda r, load: r.loads.retired(load))

    async def heartbeat(self) -> None:
        """Renew the lease."""
        await self._try("heartbeat", lambda r, load: r.loads.heartbeat(load))

    async def unloaded(self, reason: str) -> None:
        """Record the end of a load that served; only the first end counts."""
        await self._end("load.unloaded", lambda r, load: r.loads.unloaded(load, reason=reason))

    async def failed(self, phase: str, reason: str) -> None:
        """Record that the load or its engine failed; only the first end counts."""
        await self._end(
            "load.failed", lambda r, load: r.loads.failed(load, phase=phase, reason=reason)
        )

    async def _end(self, kind: str, write: _Write) -> None:
        if not self._ended:
            self._ended = True
            await self._try(kind, write)

    async def _try(self, kind: str, write: _Write) -> None:
        try:
            await self._write(write)
        except IronworksError as error:
            _log.error("not recorded", event_kind=kind, load_id=self._load_id, error=str(error))

    async def _write(self, write: _Write) -> None:
        def in_turn(registry: Registry) -> None:
            if self._load_id is not None:
                head = write(registry, self._load_id)
                if head is not None:
                    self._witness(head)

        await self._recorder.call(in_turn)

    def _witness(self, head: LogHead) -> None:
        _log.info("on record", load_id=self._load_id, log_seq=head.seq, log_hash=head.hash_hex)
