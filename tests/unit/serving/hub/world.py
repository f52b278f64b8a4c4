"""A hub's surroundings in tests: a real registry, and engines whose model is scripted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import psutil

from registry.store import Registry
from serving.hub.hub import Hub
from serving.settings import Settings

MODEL = "echo"


@dataclass
class World:
    """One state folder with ``echo@v1`` (production) and ``echo@v2``."""

    settings: Settings
    registry: Registry
    command: tuple[str, ...]
    script: Callable[..., None]

    def digest(self, version: str) -> str:
        return self.registry.version(f"{MODEL}@{version}").digest

    def events(self) -> list[str]:
        """Kinds of the load events so far, oldest first."""
        return [event.kind for event in self.registry.audit.events() if "load." in event.kind]

    def bodies(self, kind: str) -> list[dict[str, Any]]:
        return [event.body for event in self.registry.audit.events() if event.kind == kind]

    @contextlib.asynccontextmanager
    async def hub(self, *, start: bool = True, **changes: object) -> AsyncIterator[Hub]:
        settings = self.settings.model_copy(update=changes)
        hub = Hub(settings, self.registry, engine_command=self.command)
        try:
            if start:
                await hub.start()
            yield hub
        finally:
            await hub.close()
            assert engines() == [], "no engine outlives its hub"
            assert asyncio.all_tasks() == {asyncio.current_task()}, "no task is left behind"


def engines() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process().children()
        if "tests.support.scripted_engine" in child.cmdline()
    ]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)
