"""One model of a replica over time: which engine is current, how it comes back, how it is swapped.

``current`` is only ever changed between two awaits, so a request sees the old engine or
the new one and nothing in between. A keeper task watches the current engine and brings it
back when it dies; a swap replaces engine and keeper together.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import psutil
import structlog

from registry.errors import ConflictError, IronworksError
from registry.store import Version
from serving.hub.errors import EngineUnavailableError
from serving.hub.loaded import LoadedEngine
from serving.hub.loader import Loader
from serving.hub.memory import resident_bytes
from serving.hub.progress import LoadProgress
from serving.hub.protocol import ModelCard, ModelState
from serving.hub.swap_report import SwapReport

_log = structlog.get_logger(__name__)

RESTART_DELAYS_SECONDS = (0.2, 1.0, 5.0, 15.0, 30.0, 60.0)
"""Before each attempt in a row to bring an engine back; the last one repeats."""
STABLE_SECONDS = 60.0
"""An engine that lived this long starts the delays from the beginning when it dies."""


class ServedModel:
    """The engines of one model name."""

    def __init__(self, version: Version, loader: Loader, drain_seconds: float) -> None:
        self._target = version
        self._loader = loader
        self._drain_seconds = drain_seconds
        self._current: LoadedEngine | None = None
        self._retiring: set[LoadedEngine] = set()
        self._keeper: asyncio.Task[None] | None = None
        self._swapping = False
        self._state: ModelState = "loading"
        self._progress: LoadProgress | None = None
        self._last_error = ""
        self._restarts = 0
        self._next_attempt = 0.0
        self._load_seconds = 1.0

    @property
    def name(self) -> str:
        """Name of the model in the registry."""
        return self._target.model

    @property
    def current(self) -> LoadedEngine | None:
        """The engine that new requests get, None while there is none."""
        return self._current

    @property
    def state(self) -> ModelState:
        """Where it stands; only ``ready`` takes requests."""
        if self._state == "ready" and (self._current is None or self._current.death is not None):
            return "restarting"  # dead, but the keeper has not had its turn yet
        return self._state

    def engines(self) -> Iterator[LoadedEngine]:
        """Every live engine: the current one and those that still drain."""
        if self._current is not None:
            yield self._current
        yield from self._retiring

    def acquire(self) -> LoadedEngine:
        """The current engine, counted as held; the caller releases it.

        Raises:
            EngineUnavailableError: there is none; ``retry_after`` estimates when.
        """
        engine = self._current
        if engine is None or self.state != "ready":
            wait = max(0.0, self._next_attempt - time.monotonic()) + self._load_seconds
            raise EngineUnavailableError(
                f"the model has no engine now: {self.state}",
                where=self.name,
                fix=f"send the request again in {wait:.0f} s",
                retry_after=wait,
            )
        engine.acquire()
        return engine

    async def start(self) -> None:
        """Load the first version.

        Raises:
            IronworksError: it can't be loaded.
        """
        self._install(await self._load(self._target))

    async def swap(self, version: Version) -> SwapReport:
        """Serve ``version`` instead, without failing a request; the old one serves until then.

        Raises:
            ConflictError: another swap of this model is under way.
            IronworksError: the new version can't be loaded; the old one goes on.
        """
        if self._swapping or self._state in ("loading", "stopped"):
            raise ConflictError(
                "another load of this model is under way",
                where=self.name,
                fix="wait for it to end (GET /status shows it), then try again",
            )
        report = SwapReport.between(version, self._target)
        if self._current is not None and self._current.digest == version.digest:
            return report
        self._swapping = True
        try:
            new, old = await self._flip(version)
        finally:
            # Not held while the old version drains: a rollback must not wait for that.
            self._swapping = False
        report = replace(report, changed=True, seconds=dict(new.facts.seconds))
        return report if old is None else await self._retire(old, report)

    async def close(self, reason: str) -> None:
        """End every engine; each is recorded as unloaded."""
        self._state = "stopped"
        await _cancel(self._keeper)
        engines = list(self.engines())
        self._current = None
        self._retiring.clear()
        await asyncio.gather(*(engine.unload(reason) for engine in engines))

    def card(self) -> ModelCard:
        """What the HTTP tier and the admin API show."""
        target, engine = self._target, self._current
        ready = engine.facts.ready if engine is not None else None
        return ModelCard(
            name=target.model,
            version=target.version,
            digest=target.digest,
            created=target.registered_us // 1_000_000,
            state=self.state,
            restarts=self._restarts,
            max_model_len=ready.max_model_len if ready else 0,
            max_slots=ready.max_slots if ready else 0,
            device=ready.device if ready else "",
            dtype=ready.dtype if ready else "",
            weight_bytes=ready.weight_bytes if ready else 0,
            kv_bytes=ready.kv_bytes if ready else 0,
            engine_pid=engine.pid if engine else 0,
            leases=engine.leases if engine else 0,
            load_seconds=dict(engine.facts.seconds) if engine else {},
        )

    def status(self) -> dict[str, Any]:
        """The card and what is going on, as JSON values."""
        return {
            **asdict(self.card()),
            "swapping": self._swapping,
            "last_error": self._last_error,
            "loading": None if self._progress is None else self._progress.as_json(),
            "retiring": [
                {"version": engine.version, "pid": engine.pid, "leases": engine.leases}
                for engine in self._retiring
            ],
        }

    async def _flip(self, version: Version) -> tuple[LoadedEngine, LoadedEngine | None]:
        """Load ``version`` and make it current; the new engine and the one it replaced."""
        if self._current is None:
            # An operator's choice goes before the attempts to bring the old version back.
            await _cancel(self._keeper)
        try:
            new = await self._load(version)
        except BaseException:
            if self._state != "stopped" and (self._keeper is None or self._keeper.done()):
                self._keeper = asyncio.create_task(self._keep(None))
            raise
        old, old_keeper = self._current, self._keeper
        self._install(new)
        if old is not None:
            self._retiring.add(old)
        await _cancel(old_keeper)
        return new, old

    async def _retire(self, old: LoadedEngine, report: SwapReport) -> SwapReport:
        """Let the requests of ``old`` end, then end it; the report with what that took."""
        flipped = time.monotonic()
        await old.record.retired()
        cut = await old.wait_idle(self._drain_seconds)
        released = resident_bytes(old.pid)
        await old.unload(f"replaced by {report.model}@{report.version}")
        self._retiring.discard(old)
        return replace(
            report,
            seconds={**report.seconds, "drain": time.monotonic() - flipped},
            cut_requests=cut,
            released_bytes=released,
            old_engine_gone=not psutil.pid_exists(old.pid),
        )

    def _install(self, engine: LoadedEngine) -> None:
        self._current = engine
        self._target = engine.source
        self._state = "ready"
        self._keeper = asyncio.create_task(self._keep(engine))

    async def _load(self, version: Version) -> LoadedEngine:
        progress = self._progress = LoadProgress(version.name)
        try:
            engine = await self._loader.load(version, progress)
        except IronworksError as error:
            self._last_error = str(error)
            raise
        finally:
            if self._progress is progress:  # a restart and a swap may load at once
                self._progress = None
        self._last_error = ""
        self._load_seconds = engine.facts.seconds["total"]
        return engine

    async def _keep(self, engine: LoadedEngine | None) -> None:
        """Watch ``engine`` and its successors for ever; None: bring one back first."""
        attempts = 0
        while True:
            if engine is not None:
                began = time.monotonic()
                reason = await engine.died()
                self._current = None
                self._last_error = f"the engine process {reason}"
                self._state = "restarting"
                await engine.unload("died")
                if time.monotonic() - began > STABLE_SECONDS:
                    attempts = 0
            self._state = "restarting"
            engine = await self._bring_back(attempts)
            attempts += 1

    async def _bring_back(self, attempts: int) -> LoadedEngine | None:
        delay = RESTART_DELAYS_SECONDS[min(attempts, len(RESTART_DELAYS_SECONDS) - 1)]
        self._next_attempt = time.monotonic() + delay
        await asyncio.sleep(delay)
        try:
            engine = await self._load(self._target)
        except IronworksError as error:
            _log.warning("restart failed", model=self.name, error=str(error))
            return None
        except Exception:
            _log.exception("restart failed", model=self.name)
            return None
        self._current = engine
        self._state = "ready"
        self._restarts += 1
        return engine


async def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
