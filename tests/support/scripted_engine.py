"""An engine process without a model: speaks ``messages.py`` and misbehaves on request.

Run as the real one is, with ``--script FILE`` in front of ``--socket PATH``. The file is
read when the process starts, so a test changes it between two loads. It echoes prompts:
the n-th output token is the n-th prompt token, over and over.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import sys
import time
from collections import deque
from pathlib import Path

import msgspec

from serving.engine.channel import Channel, PeerGone
from serving.engine.messages import (
    Cancel,
    EngineStats,
    FileDigest,
    Generate,
    Hello,
    Load,
    LoadFailed,
    Proceed,
    Progress,
    Ready,
    RequestFailed,
    Shutdown,
    StepOutput,
    TokenOutput,
    Verified,
)

HEARTBEAT_SECONDS = 0.1
FAILING_TOKEN = 999
"""A prompt that holds this token fails with ``RequestFailed``."""
DEADLY_TOKEN = 666
"""A prompt that holds this token kills the engine with SIGKILL."""
MUTE_TOKEN = 333
"""A prompt that holds this token makes the engine say nothing any more."""


class Script(msgspec.Struct):
    """How the engine behaves."""

    connect: bool = True
    load_seconds: float = 0.0
    fail_load: str = ""
    """Code of the ``LoadFailed`` to send instead of ``Verified``."""
    die_in: str = ""
    """``read`` or ``warmup``: exit with status 3 there."""
    lie: bool = False
    """Report another digest than that of the bytes."""
    hash_files: bool = False
    """Hash the files for real and fail like the real engine on a difference."""
    token_seconds: float = 0.0
    """Pause after each step."""
    garbage: bool = False
    """After ``Hello`` send bytes that are no message."""
    ignore_shutdown: bool = False
    journal: str = ""
    """File to which the ids of cancelled requests are appended."""


class Engine:
    def __init__(self, channel: Channel, script: Script) -> None:
        self.channel = channel
        self.script = script
        self.requests: dict[str, tuple[Generate, int]] = {}
        self.inbox: deque[object] = deque()
        self.steps = 0
        self.mute = False

    def next(self) -> object:
        while not self.inbox:
            self.inbox.extend(self.channel.receive(1.0))
        return self.inbox.popleft()

    def load(self) -> None:
        load = self.next()
        assert isinstance(load, Load)
        total = sum(file.size for file in load.files)
        self.channel.send(Progress("read", 0, total))
        if self.script.die_in == "read":
            sys.exit(3)
        time.sleep(self.script.load_seconds)
        files = load.files
        if self.script.fail_load:
            self.fail("scripted", load.model_dir, self.script.fail_load)
        if self.script.hash_files:
            files = tuple(self.hashed(load, file) for file in files)
        if self.script.lie:
            files = (FileDigest(files[0].path, files[0].size, "0" * 64), *files[1:])
        self.channel.send(Progress("read", total, total))
        self.channel.send(Verified(files, {"check": 0.1, "read": 0.2}))
        assert isinstance(self.next(), Proceed)
        self.channel.send(Progress("warmup", 0, 0))
        if self.script.die_in == "warmup":
            sys.exit(3)
        self.channel.send(
            Ready(
                device=load.device,
                dtype="bfloat16",
                max_model_len=load.max_model_len,
                max_slots=load.max_slots,
                vocab_size=49152,
                eos_token_ids=(2,),
                weight_bytes=total,
                kv_bytes=1024,
                seconds={"check": 0.1, "read": 0.2, "place": 0.3, "warmup": 0.4},
            )
        )

    def hashed(self, load: Load, file: FileDigest) -> FileDigest:
        data = (Path(load.model_dir) / file.path).read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        if digest != file.sha256:
            self.fail("the bytes are not those of the manifest", file.path, "integrity")
        return FileDigest(file.path, len(data), digest)

    def fail(self, what: str, where: str, code: str) -> None:
        self.channel.send(LoadFailed("read", what, where, "copy it again", code))
        sys.exit(1)

    def serve(self) -> None:
        while True:
            for message in self.channel.receive(0.0 if self.requests else HEARTBEAT_SECONDS):
                self.handle(message)
            if not self.mute:
                self.step()
            time.sleep(self.script.token_seconds)

    def handle(self, message: object) -> None:
        match message:
            case Generate(request_id, token_ids) if FAILING_TOKEN in token_ids:
                self.channel.send(RequestFailed(request_id, "scripted failure", "bad_request"))
            case Generate(_, token_ids) if DEADLY_TOKEN in token_ids:
                os.kill(os.getpid(), signal.SIGKILL)
            case Generate(request_id, token_ids) as request:
                self.mute = self.mute or MUTE_TOKEN in token_ids
                self.requests[request_id] = (request, 0)
            case Cancel(request_id):
                self.requests.pop(request_id, None)
                if self.script.journal:
                    with Path(self.script.journal).open("a") as journal:
                        journal.write(f"{request_id}\n")
            case Shutdown() if not self.script.ignore_shutdown:
                sys.exit(0)

    def step(self) -> None:
        outputs = []
        for request_id, (request, done) in list(self.requests.items()):
            last = done + 1 >= request.sampling.max_tokens
            token = request.token_ids[done % len(request.token_ids)]
            outputs.append(TokenOutput(request_id, (token,), "length" if last else None))
            if last:
                del self.requests[request_id]
            else:
                self.requests[request_id] = (request, done + 1)
        self.steps += bool(outputs)
        running = len(self.requests)
        stats = EngineStats(self.steps, running, 0, 0, 1024, 4096, 0, 0, 0)
        self.channel.send(StepOutput(tuple(outputs), stats))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--socket", type=Path, required=True)
    arguments = parser.parse_args()
    script = msgspec.json.decode(arguments.script.read_bytes(), type=Script)
    if not script.connect:
        time.sleep(600)
    channel = Channel.connect(arguments.socket)
    if script.garbage:
        channel._socket.sendall(b"\x00\x00\x00\x04nope")
        time.sleep(600)
    channel.send(Hello(os.getpid(), time.time_ns() // 1000, "scripted", "none", "none"))
    engine = Engine(channel, script)
    engine.load()
    engine.serve()


if __name__ == "__main__":
    try:
        main()
    except PeerGone:
        sys.exit(0)
