"""A stand-in for the API process: listens, starts a real engine process, talks to it."""

from __future__ import annotations

import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import msgspec

from serving.engine.framing import FrameBuffer, encode_frame
from serving.engine.messages import (
    FileDigest,
    FromEngine,
    Generate,
    Hello,
    Load,
    LoadFailed,
    Proceed,
    Ready,
    RequestFailed,
    SamplingParams,
    StepOutput,
    ToEngine,
    Verified,
)
from serving.loading.inventory import digests_of

_decoder: msgspec.msgpack.Decoder[FromEngine] = msgspec.msgpack.Decoder(FromEngine)
DEADLINE_SECONDS = 120.0


class EnginePeer:
    """One engine process and the conversation with it, everything it said included."""

    def __init__(self, directory: Path) -> None:
        path = directory / "engine.sock"
        path.unlink(missing_ok=True)
        self._log = (directory / "engine.log").open("wb")
        self.log_path = directory / "engine.log"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(path))
            listener.listen(1)
            listener.settimeout(DEADLINE_SECONDS)
            self.process = subprocess.Popen(
                [sys.executable, "-m", "serving.engine.process", "--socket", str(path)],
                stdin=subprocess.DEVNULL,
                stderr=self._log,
            )
            self.socket, _ = listener.accept()
        self._buffer = FrameBuffer()
        self._queue: list[FromEngine] = []
        self.said: list[FromEngine] = []

    def __enter__(self) -> EnginePeer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()
        self.process.kill()
        self.process.wait()
        self._log.close()

    def send(self, *messages: ToEngine) -> None:
        self.socket.sendall(b"".join(encode_frame(message) for message in messages))

    def receive(self, timeout: float = DEADLINE_SECONDS) -> FromEngine:
        """The next message.

        Raises:
            EOFError: the engine ended.
            TimeoutError: it is silent.
        """
        deadline = time.monotonic() + timeout
        while not self._queue:
            if not select.select([self.socket], [], [], max(deadline - time.monotonic(), 0))[0]:
                raise TimeoutError("the engine is silent")
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                data = b""
            if not data:
                raise EOFError("the engine ended")
            self._queue += [_decoder.decode(payload) for payload in self._buffer.feed(data)]
        message = self._queue.pop(0)
        self.said.append(message)
        return message

    def until(self, *kinds: type) -> FromEngine:
        """The next message of one of the kinds; others are dropped."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            message = self.receive()
            if isinstance(message, kinds):
                return message
        raise TimeoutError(f"no {kinds}")

    def load(self, request: Load) -> Ready | LoadFailed:
        """Load to the end, whichever it is."""
        self.until(Hello)
        self.send(request)
        message = self.until(Verified, LoadFailed)
        if isinstance(message, Verified):
            self.send(Proceed())
            message = self.until(Ready, LoadFailed)
        assert isinstance(message, Ready | LoadFailed)
        return message

    def answers(self, *requests: Generate) -> dict[str, list[int] | RequestFailed]:
        """Send requests at once; the tokens, or the failure, of each."""
        self.send(*requests)
        return self.collect(*(request.request_id for request in requests))

    def collect(self, *request_ids: str) -> dict[str, list[int] | RequestFailed]:
        answers: dict[str, list[int] | RequestFailed] = {name: [] for name in request_ids}
        open_ids = set(request_ids)
        while open_ids:
            message = self.until(StepOutput, RequestFailed)
            if isinstance(message, RequestFailed):
                answers[message.request_id] = message
                open_ids.discard(message.request_id)
                continue
            assert isinstance(message, StepOutput)
            for output in message.outputs:
                tokens = answers.get(output.request_id)
                if isinstance(tokens, list):
                    tokens.extend(output.token_ids)
                if output.finish_reason is not None:
                    open_ids.discard(output.request_id)
        return answers

    def idle_stats(self) -> StepOutput:
        """The next heartbeat that finds the engine idle."""
        while True:
            message = self.until(StepOutput)
            assert isinstance(message, StepOutput)
            if not message.outputs and not message.stats.running and not message.stats.waiting:
                return message


def load_request(
    directory: Path,
    *,
    files: tuple[FileDigest, ...] | None = None,
    device: str = "cpu",
    dtype: str = "auto",
    max_slots: int = 4,
    max_model_len: int = 128,
    max_batch_tokens: int = 32,
    threads: int = 1,
) -> Load:
    """A ``Load`` of a directory as it is now, with small sizes."""
    return Load(
        model_dir=str(directory),
        files=digests_of(directory) if files is None else files,
        device=device,
        dtype=dtype,
        max_slots=max_slots,
        max_model_len=max_model_len,
        max_batch_tokens=max_batch_tokens,
        threads=threads,
    )


def greedy(
    request_id: str, tokens: list[int], max_tokens: int = 8, *, ignore_eos: bool = True
) -> Generate:
    """A greedy request that runs to its length."""
    return Generate(
        request_id, tuple(tokens), SamplingParams(max_tokens=max_tokens, ignore_eos=ignore_eos)
    )


@contextmanager
def parent_of_engine(directory: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process that started an engine and waits: the process, and the engine's pid."""
    script = (
        "import sys, time; from pathlib import Path\n"
        "from tests.support.engine_peer import EnginePeer\n"
        "peer = EnginePeer(Path(sys.argv[1])); print(peer.process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(directory)], stdout=subprocess.PIPE
    )
    try:
        assert parent.stdout is not None
        yield parent, int(parent.stdout.readline())
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
