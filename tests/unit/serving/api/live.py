"""A real uvicorn server on a free loopback port, in a thread of the test."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from serving.api.app import create_app
from serving.hub.protocol import ModelHub
from serving.settings import Settings


@contextmanager
def serve(hub: ModelHub, **settings: Any) -> Iterator[str]:
    """Serve ``hub`` and give the base address."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    app = create_app(hub, Settings(**settings))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + 30
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()


def wait_until(condition: Any, *, seconds: float = 20) -> None:
    """Return as soon as ``condition()`` is true; fail when it never is."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.005)
