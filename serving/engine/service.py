"""One engine's conversation with the API, from ``Hello`` to the end."""

from __future__ import annotations

import os
import time
from collections import deque
from importlib.metadata import PackageNotFoundError, version
from typing import TypeVar

import msgspec
import psutil
import structlog

from registry.errors import IronworksError
from serving.engine.channel import Channel
from serving.engine.engine import Engine
from serving.engine.loading import ModelLoad
from serving.engine.messages import (
    Cancel,
    Generate,
    Hello,
    Load,
    LoadFailed,
    LoadPhase,
    Proceed,
    Progress,
    RequestFailed,
    Shutdown,
    StepOutput,
    ToEngine,
    Verified,
)

log = structlog.get_logger(__name__)

HEARTBEAT_SECONDS = 1.0

M = TypeVar("M", bound=msgspec.Struct)


class ShutdownRequested(Exception):
    """The API asked the engine to exit."""


class OutOfTurn(Exception):
    """The API said something that does not belong here: the two disagree on the protocol."""


class EngineService:
    """Obeys one API process over one channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._inbox: deque[ToEngine] = deque()

    def run(self) -> None:
        """Load the model that the API names and serve it.

        Raises:
            ShutdownRequested: the API said ``Shutdown``.
            LoadRefused: the model could not be loaded; the API has been told.
            PeerGone: the API closed the connection.
        """
        self._channel.send(_hello())
        request = self._next(Load)
        engine = self._load(request)
        log.info("serving")
        self._serve(engine)

    def _load(self, request: Load) -> Engine:
        load = ModelLoad(request, self._tell_progress)
        try:
            files = load.verify()
            self._channel.send(Verified(files=files, seconds=dict(load.seconds)))
            self._next(Proceed)
            engine, ready = load.start()
        except IronworksError as error:
            self._refuse(load.phase, error.what, error.where, error.fix, error.code)
            raise LoadRefused(error.what) from error
        except (MemoryError, RuntimeError, OSError) as error:
            # Whatever torch or the file system say; the traceback goes to our log.
            what = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:300]}"
            self._refuse(load.phase, what, request.model_dir, "see the engine's log", "engine")
            raise
        self._channel.send(ready)
        return engine

    def _refuse(self, phase: LoadPhase, what: str, where: str, fix: str, code: str) -> None:
        log.error("load failed", phase=phase, what=what, where=where)
        self._channel.send(LoadFailed(phase=phase, what=what, where=where, fix=fix, code=code))

    def _tell_progress(self, phase: LoadPhase, done: int, total: int) -> None:
        self._channel.send(Progress(phase=phase, bytes_done=done, bytes_total=total))

    def _next(self, kind: type[M]) -> M:
        """Wait for one message of a kind."""
        while not self._inbox:
            self._inbox += self._channel.receive(HEARTBEAT_SECONDS)
        message = self._inbox.popleft()
        if isinstance(message, Shutdown):
            raise ShutdownRequested
        if not isinstance(message, kind):
            raise OutOfTurn(f"{type(message).__name__} instead of {kind.__name__}")
        return message

    def _serve(self, engine: Engine) -> None:
        said = 0.0
        while True:
            self._inbox += self._channel.receive(0 if engine.busy else HEARTBEAT_SECONDS)
            while self._inbox:
                self._obey(engine, self._inbox.popleft())
            if not engine.busy:
                engine.check_integrity()
            result = engine.step()
            for failure in result.failures:
                self._channel.send(failure)
            now = time.monotonic()
            if result.outputs or now - said >= HEARTBEAT_SECONDS:
                self._channel.send(StepOutput(tuple(result.outputs), engine.stats()))
                said = now

    def _obey(self, engine: Engine, message: ToEngine) -> None:
        match message:
            case Generate():
                try:
                    engine.add(message)
                except IronworksError as error:
                    what = f"{error.what} ({error.where})"
                    self._channel.send(RequestFailed(message.request_id, what, error.code))
            case Cancel():
                engine.cancel(message.request_id)
            case Shutdown():
                raise ShutdownRequested
            case Load() | Proceed():
                raise OutOfTurn(f"{type(message).__name__} while serving")


class LoadRefused(Exception):
    """The model can't be served; the API knows why."""


def _hello() -> Hello:
    return Hello(
        pid=os.getpid(),
        process_start_us=int(psutil.Process().create_time() * 1_000_000),
        engine_version=_version("ironworks"),
        torch_version=_version("torch"),
        transformers_version=_version("transformers"),
    )


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"
