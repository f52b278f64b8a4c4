"""A replica's API process: two servers and the hub on one event loop, and how it ends.

SIGTERM or SIGINT: readiness drops, running requests end within ``drain_seconds``, engines
are told to exit and recorded as unloaded, then the process exits with 0. A second signal
cuts the waiting short.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Coroutine, Generator
from typing import Any

import structlog
import uvicorn
import uvloop

from registry.paths import StatePaths
from registry.store import Registry
from serving.api.admin import create_admin_app
from serving.api.app import create_app
from serving.client import admin_socket_path
from serving.hub.hub import Hub
from serving.settings import Settings
from serving.sockets import bind_admin, bind_tcp
from serving.telemetry.sketches import Sketches

_log = structlog.get_logger(__name__)

_CLOSE_CONNECTIONS_SECONDS = 5
"""How long answers that are being written at the very end may take to leave."""


def run(settings: Settings) -> None:
    """Run a replica until it is told to stop; returns after a clean stop.

    Raises:
        InputError: the port or the service name is taken, or no model is named.
        IronworksError: the registry can't be opened or the first version can't be loaded.
    """
    paths = StatePaths(settings.state).create()
    admin_path = admin_socket_path(settings.state, settings.service_name)
    with contextlib.ExitStack() as stack:
        public = stack.enter_context(contextlib.closing(bind_tcp(settings.host, settings.port)))
        admin = stack.enter_context(contextlib.closing(bind_admin(admin_path)))
        stack.callback(admin_path.unlink, missing_ok=True)
        registry = stack.enter_context(Registry.open(paths.registry, create=False))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(settings, Hub(settings, registry), public, admin))


async def _run(settings: Settings, hub: Hub, public: socket.socket, admin: socket.socket) -> None:
    stop, cut = _stop_signals()
    sketches = Sketches()
    servers = [
        _Server(create_app(hub, settings, sketches)),
        _Server(create_admin_app(hub, sketches)),
    ]
    serving = [
        asyncio.create_task(server.serve(sockets=[listener]), name="http-server")
        for server, listener in zip(servers, (public, admin), strict=True)
    ]
    _log.info("listening", address=f"{settings.host}:{settings.port}")
    try:
        await _first(hub.start(), stop.wait(), _ended(serving))
        if not stop.is_set():
            _log.info("serving", models=[card.name for card in hub.models()])
            await _first(stop.wait(), _ended(serving))
        await _first(hub.drain(), cut.wait())
    finally:
        await hub.close()
        for server in servers:
            server.should_exit = True
        await asyncio.gather(*serving)
        _log.info("stopped")


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals and log configuration to the replica."""

    def __init__(self, app: Any) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                access_log=False,
                log_config=None,
                log_level="warning",
                timeout_graceful_shutdown=_CLOSE_CONNECTIONS_SECONDS,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture none."""
        yield


def _stop_signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Events set by the first and by the second SIGTERM or SIGINT."""
    stop, cut = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (cut if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return stop, cut


async def _ended(serving: list[asyncio.Task[None]]) -> None:
    """Wait until a server ends, which none does by itself; raise what ended it."""
    done, _ = await asyncio.wait(serving, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def _first(*coroutines: Coroutine[Any, Any, Any]) -> None:
    """Run all until one ends; cancel the others; raise what any that ended raised."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
