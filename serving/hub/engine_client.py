"""The API's side of the conversation with one engine process.

One task reads everything the engine says and hands it on: load messages to ``load``,
outputs to the queue of their request, statistics to ``stats``. When the engine ends,
hangs or breaks the protocol that same task kills what is left, fails every open request
and resolves ``died``; nothing else has to watch.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from serving.engine.framing import FramingError, encode_frame
from serving.engine.messages import (
    Cancel,
    EngineStats,
    FromEngine,
    Generate,
    Hello,
    Load,
    LoadFailed,
    LoadPhase,
    Proceed,
    Progress,
    Ready,
    RequestFailed,
    SamplingParams,
    Shutdown,
    StepOutput,
    ToEngine,
    TokenOutput,
    Verified,
)
from serving.hub.engine_process import EngineProcess
from serving.hub.errors import EngineDiedError, RequestFailedError
from serving.hub.framing import read_message
from serving.hub.work import WorkMeter

_log = structlog.get_logger(__name__)

OnVerified = Callable[[Verified], Awaitable[None]]
OnProgress = Callable[[Progress], None]
_Outcome = TokenOutput | RequestFailedError | EngineDiedError
_EXIT_AFTER_EOF_SECONDS = 2.0
_FIX = "send the request again"


@dataclass(frozen=True)
class SilenceLimits:
    """After how many seconds without a word an engine counts as hung."""

    loading: float
    serving: float


class EngineClient:
    """A connected engine. Make it with :meth:`start`; end it with :meth:`shutdown`."""

    def __init__(self, process: EngineProcess, silence: SilenceLimits) -> None:
        self._process = process
        self._limits = silence
        self._silence_seconds = silence.loading
        self._streams: dict[str, asyncio.Queue[_Outcome]] = {}
        self._numbers = itertools.count(1)
        self._load_messages: asyncio.Queue[FromEngine | None] = asyncio.Queue()
        self._stats: EngineStats | None = None
        self._phase: LoadPhase = "start"
        self._death: str | None = None
        self.work = WorkMeter()
        self._reader = asyncio.create_task(self._read(), name=f"engine-{process.pid}-reader")

    @classmethod
    async def start(
        cls, command: Sequence[str], socket_path: Path, *, silence: SilenceLimits
    ) -> tuple[EngineClient, Hello]:
        """Spawn an engine and hear who it is.

        Raises:
            EngineDiedError: the process ended or stayed silent before it said ``Hello``.
        """
        try:
            process = await EngineProcess.spawn(
                command, socket_path, deadline_seconds=silence.loading
            )
        except ChildProcessError as error:
            raise EngineDiedError(f"the engine process {error}", where=command[0]) from error
        client = cls(process, silence)
        try:
            hello = await client._next_load_message()
            if not isinstance(hello, Hello):
                raise client._unexpected(hello)
        except BaseException:
            await client.kill()
            raise
        return client, hello

    @property
    def pid(self) -> int:
        """Process id of the engine."""
        return self._process.pid

    @property
    def stats(self) -> EngineStats | None:
        """Latest statistics, None before the first."""
        return self._stats

    @property
    def phase(self) -> LoadPhase:
        """How far the engine's life has got."""
        return self._phase

    @property
    def death(self) -> str | None:
        """Why the engine is gone, None while it lives."""
        return self._death

    async def died(self) -> str:
        """Wait until the engine is gone; why."""
        await asyncio.shield(self._reader)
        return self._death or self._process.exit_text()

    async def load(
        self, load: Load, *, on_verified: OnVerified, on_progress: OnProgress
    ) -> Ready | LoadFailed:
        """Have the engine load a model; ``on_verified`` returns once that is on record.

        Raises:
            EngineDiedError: the engine ended, hung or broke the protocol.
        """
        self._send(load)
        while True:
            match await self._next_load_message():
                case Progress() as progress:
                    on_progress(progress)
                case Verified() as verified:
                    await on_verified(verified)
                    self._send(Proceed())
                case LoadFailed() as failed:
                    return failed
                case Ready() as ready:
                    return ready
                case other:
                    raise self._unexpected(other)

    async def generate(
        self, request_id: str, token_ids: Sequence[int], sampling: SamplingParams
    ) -> AsyncIterator[TokenOutput]:
        """See :meth:`serving.hub.protocol.LoadedModel.generate`."""
        if self._death is not None:
            raise self._died_error()
        # Clients may repeat an id, and a late output of a cancelled request must not
        # reach its namesake, so the engine sees a name of our own.
        name = f"{request_id}.{next(self._numbers)}"
        queue: asyncio.Queue[_Outcome] = asyncio.Queue()
        self._streams[name] = queue
        self.work.asked(name)
        self._send(Generate(name, tuple(token_ids), sampling))
        ended = False
        try:
            while not ended:
                outcome = await queue.get()
                ended = not isinstance(outcome, TokenOutput) or outcome.finish_reason is not None
                if not isinstance(outcome, TokenOutput):
                    raise outcome
                yield outcome
        finally:
            del self._streams[name]
            self.work.ended(name)
            if not ended:
                self._send(Cancel(name))

    async def shutdown(self, grace_seconds: float) -> None:
        """Ask the engine to exit, kill it after ``grace_seconds``; returns when it is gone."""
        self._send(Shutdown())
        await self._process.wait(grace_seconds)
        await self.kill()

    async def kill(self) -> None:
        """End the engine at once; open requests fail. Returns when it is gone."""
        await self._process.kill()
        await asyncio.shield(self._reader)

    def _send(self, message: ToEngine) -> None:
        # No drain(): admission bounds what can be queued, and a request must not wait
        # for the engine's current step. A dead engine is the reader's business.
        if self._death is None:
            with contextlib.suppress(OSError, RuntimeError):
                self._process.writer.write(encode_frame(message))

    async def _next_load_message(self) -> FromEngine:
        message = await self._load_messages.get()
        if message is None:
            raise self._died_error()
        return message

    def _unexpected(self, message: FromEngine) -> EngineDiedError:
        return EngineDiedError(
            f"the engine said {type(message).__name__} out of turn", where=f"pid {self.pid}"
        )

    def _died_error(self) -> EngineDiedError:
        return EngineDiedError(
            f"the engine process {self._death or 'ended'}", where=f"pid {self.pid}", fix=_FIX
        )

    async def _read(self) -> None:
        why = ""
        try:
            while True:
                async with asyncio.timeout(self._silence_seconds):
                    message = await read_message(self._process.reader)
                self.work.heard()
                self._dispatch(message)
        except TimeoutError:
            why = f"said nothing for {self._silence_seconds:g} s and was killed"
        except FramingError as error:
            why = f"broke the protocol ({error}) and was killed"
        except (EOFError, OSError):
            # Let it exit by itself: its status tells why.
            if not await self._process.wait(_EXIT_AFTER_EOF_SECONDS):
                why = "closed its connection and was killed"
        finally:
            ended = await self._process.kill()
            self._end(why or ended)

    def _dispatch(self, message: FromEngine) -> None:
        if isinstance(message, StepOutput):
            self._stats = message.stats
            self.work.stepped(message.stats.steps)
            for output in message.outputs:
                if output.finish_reason is not None:
                    self.work.ended(output.request_id)
                if queue := self._streams.get(output.request_id):
                    queue.put_nowait(output)
        elif isinstance(message, RequestFailed):
            self.work.ended(message.request_id)
            if queue := self._streams.get(message.request_id):
                queue.put_nowait(RequestFailedError(message.what, code=message.code))
        else:
            if isinstance(message, Progress | LoadFailed):
                self._phase = message.phase
            elif isinstance(message, Ready):
                self._phase = "serving"
                self._silence_seconds = self._limits.serving
            self._load_messages.put_nowait(message)

    def _end(self, death: str) -> None:
        self._death = death
        self._load_messages.put_nowait(None)
        for queue in self._streams.values():
            queue.put_nowait(self._died_error())
        _log.info("engine ended", pid=self.pid, phase=self._phase, how=death)
