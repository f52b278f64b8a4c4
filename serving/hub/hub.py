"""The models of one replica: start, lease, swap, drain, close."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import structlog

from registry.errors import InputError, NotFoundError
from registry.store import Registry, Version
from serving.engine.messages import EngineStats
from serving.hub.device import resolve_device
from serving.hub.errors import EngineUnavailableError
from serving.hub.identity import ReplicaFacts
from serving.hub.load_record import Recorder
from serving.hub.loaded import LoadedEngine
from serving.hub.loader import Loader
from serving.hub.memory import memory_report
from serving.hub.protocol import ModelCard, ReadyState
from serving.hub.served import ServedModel
from serving.hub.swap_report import SwapReport
from serving.hub.work import EngineProgress
from serving.settings import Settings

_log = structlog.get_logger(__name__)

ENGINE_COMMAND = (sys.executable, "-m", "serving.engine.process")
DRAINING_RETRY_SECONDS = 5.0
STARTING_RETRY_SECONDS = 2.0
_SHOWN_NAME = 80


class Hub:
    """Implements ``protocol.ModelHub``; lives on one event loop.

    Args:
        settings: of the replica.
        registry: open registry; the caller closes it after :meth:`close`.
        engine_command: what to spawn as an engine, without ``--socket PATH``.
    """

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        *,
        engine_command: Sequence[str] = ENGINE_COMMAND,
    ) -> None:
        self._settings = settings
        self._recorder = Recorder(registry)
        self._command = tuple(engine_command)
        self._models: dict[str, ServedModel] = {}
        self._swaps: set[asyncio.Task[SwapReport]] = set()
        self._heartbeat: asyncio.Task[None] | None = None
        self._started = False
        self._draining = False

    async def start(self) -> None:
        """Load the version that the alias names, for every model of the settings.

        Raises:
            InputError: no model is named.
            NotFoundError: a model has no such alias.
            IronworksError: a version can't be loaded. Nothing is left running then, but
                the caller still has to :meth:`close`.
        """
        if not self._settings.models:
            raise InputError(
                "no model to serve is named",
                where="IRONWORKS_MODEL",
                fix="pass --model NAME; `ironworks registry list` shows the names",
            )
        device = await asyncio.to_thread(resolve_device, self._settings.device)
        facts = await asyncio.to_thread(ReplicaFacts.gather, self._settings, device)
        loader = Loader(self._settings, facts, self._recorder, self._command)
        for name in self._settings.models:
            version = await self._aliased(name)
            self._models[name] = ServedModel(version, loader, self._settings.swap_drain_seconds)
        self._heartbeat = asyncio.create_task(self._beat(), name="load-heartbeat")
        for model in self._models.values():
            await model.start()
        self._started = True

    @contextlib.asynccontextmanager
    async def lease(self, model: str) -> AsyncIterator[LoadedEngine]:
        """See :meth:`serving.hub.protocol.ModelHub.lease`."""
        served = self._models.get(model)
        if served is None and not self._started and model in self._settings.models:
            raise EngineUnavailableError(
                "the replica is starting",
                where=model,
                fix="send the request again in a moment",
                retry_after=STARTING_RETRY_SECONDS,
            )
        if served is None:
            raise NotFoundError(
                "this replica serves no model of that name",
                where=model[:_SHOWN_NAME],
                fix=f"served here: {', '.join(self._models) or 'none yet'}",
            )
        if self._draining:
            raise EngineUnavailableError(
                "the replica is draining",
                where=model,
                fix="send the request to another replica",
                retry_after=DRAINING_RETRY_SECONDS,
            )
        engine = served.acquire()
        try:
            yield engine
        finally:
            engine.release()

    def models(self) -> list[ModelCard]:
        """Every model of this replica, live or not."""
        return [model.card() for model in self._models.values()]

    def stats(self) -> dict[str, EngineStats]:
        """Latest engine statistics by model name; only models with a live engine."""
        return {
            name: engine.stats
            for name, model in self._models.items()
            if (engine := model.current) is not None and engine.stats is not None
        }

    def ready(self) -> ReadyState:
        """Whether the replica accepts work: started, not draining, every model live and heard."""
        if self._draining:
            return ReadyState(False, "draining")
        for name, model in self._models.items():
            if model.state != "ready":
                return ReadyState(False, f"{name} is {model.state}")
        if not self._started:
            return ReadyState(False, "starting")
        for engine in self.progress():
            problem = engine.problem(self._settings.stall_seconds)
            if problem:
                return ReadyState(False, problem)
        return ReadyState(True)

    def progress(self) -> list[EngineProgress]:
        """How every live engine gets on, those included that only end what they had."""
        return [
            engine.progress()
            for model in self._models.values()
            for engine in model.engines()
            if engine.death is None
        ]

    async def swap(self, ref: str) -> SwapReport:
        """Serve the version ``ref`` of a model served here; returns when the old one is gone.

        The swap goes on if the caller is cancelled.

        Raises:
            NotFoundError: no such version, or its model is not served here.
            ConflictError: another swap of that model is under way, or the replica drains.
            IronworksError: the version can't be loaded; the old one goes on serving.
        """
        version = await self._recorder.call(lambda registry: registry.version(ref))
        served = self._models.get(version.model)
        if served is None:
            raise NotFoundError(
                "this replica does not serve the model of that version",
                where=version.name,
                fix=f"served here: {', '.join(self._models) or 'none yet'}",
            )
        if self._draining:
            raise EngineUnavailableError(
                "the replica is draining", where=version.name, fix="swap on another replica"
            )
        task = asyncio.create_task(served.swap(version), name=f"swap-{version.name}")
        self._swaps.add(task)
        task.add_done_callback(self._swaps.discard)
        return await asyncio.shield(task)

    async def drain(self, deadline_seconds: float | None = None) -> int:
        """Take no more requests and wait for the running ones; how many still run.

        Readiness drops at once. ``deadline_seconds`` defaults to the settings' value.
        """
        self._draining = True
        seconds = self._settings.drain_seconds if deadline_seconds is None else deadline_seconds
        engines = [engine for model in self._models.values() for engine in model.engines()]
        _log.info("draining", leases=sum(engine.leases for engine in engines), seconds=seconds)
        return sum(await asyncio.gather(*(engine.wait_idle(seconds) for engine in engines)))

    async def close(self, reason: str = "the replica stopped") -> None:
        """End every engine, record it, and leave no task behind. Running requests fail."""
        self._draining = True
        tasks: list[asyncio.Task[Any]] = [*self._swaps]
        if self._heartbeat is not None:
            tasks.append(self._heartbeat)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(model.close(reason) for model in self._models.values()))
        await self._recorder.close()

    def status(self) -> dict[str, Any]:
        """Everything the admin API's ``GET /status`` shows, as JSON values."""
        ready = self.ready()
        return {
            "service": self._settings.service_name,
            "ready": ready.ok,
            "reason": ready.reason,
            "draining": self._draining,
            "models": [model.status() for model in self._models.values()],
        }

    def memory(self) -> dict[str, Any]:
        """Memory of this process, of every engine and of the devices, in bytes."""
        engines = [engine for model in self._models.values() for engine in model.engines()]
        return memory_report(engines)

    async def _aliased(self, model: str) -> Version:
        alias_name = self._settings.alias
        alias = await self._recorder.call(lambda registry: registry.alias(model, alias_name))
        if alias is None:
            raise NotFoundError(
                f"the model has no version under the alias {alias_name}",
                where=model,
                fix=f"`ironworks registry promote {model}@VERSION --alias {alias_name}`",
            )
        digest = alias.digest
        version: Version = await self._recorder.call(lambda registry: registry.version(digest))
        return version

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._settings.heartbeat_seconds)
            for model in self._models.values():
                for engine in list(model.engines()):
                    await engine.record.heartbeat()
