"""A whole machine as a tree of files, commands and sockets: healthy, or broken in one way."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lifecycle.host.commands import ProcessRunner, Ran
from lifecycle.host.host import Host
from lifecycle.host.inspection import Inspection
from serving.client import admin_socket_path
from tests.support.fake_nvml import FakeGpuHost
from tests.support.hosts import files
from tests.support.hosts.libraries import build_library
from tests.support.hosts.scripted_replica import ScriptedReplica

REPLICA, ENGINE = 4100, 4101
STATE = "/var/lib/ironworks"
SERVICE = "replica-8000"


class FixtureHost:
    """One H100-like machine that serves one model; healthy as made.

    Args:
        home: a new folder.
    """

    def __init__(self, home: Path) -> None:
        self.gpu = FakeGpuHost(home, driver=files.DRIVER)
        self.root = self.gpu.root
        self.replica = ScriptedReplica(ENGINE)
        self.torch: dict[str, Any] = json.loads(json.dumps(files.TORCH))
        self.gpu.set({"gpu0.persistence": 1})
        for path, text in files.HEALTHY.items():
            self.file(path, text)
        for link, target in files.LINKS.items():
            self.link(link, target)
        for folder in ("/run/systemd/system", "/sys/devices/system/node/node0", "/dev/shm"):
            (self.root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        for name, script in files.COMMANDS.items():
            self.command(name, script)
        self._libraries()
        self._package()
        self.serving_process(
            REPLICA, "python", "-m", "ironworks", "serve", "--service", SERVICE, "--port", "8000"
        )
        self.serving_process(ENGINE, "python", "-m", "serving.engine.process", "--socket", "s")

    def file(self, path: str, text: str) -> None:
        self.gpu.file(path, text)

    def remove(self, path: str) -> None:
        (self.root / path.lstrip("/")).unlink()

    def link(self, path: str, target: str) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(target)

    def library(self, path: str, soname: str, **inside: str) -> None:
        build_library(self.root / path.lstrip("/"), soname, **inside)

    def command(self, name: str, script: str) -> None:
        """A program on PATH; ``script`` is sh."""
        program = self.gpu.home / "bin" / name
        program.write_text(f"#!/bin/sh\n{script}")
        program.chmod(0o755)

    def environ(self, pid: int, **variables: str) -> None:
        """What the process was started with."""
        self.file(f"/proc/{pid}/environ", "".join(f"{k}={v}\0" for k, v in variables.items()))

    def serving_process(self, pid: int, *arguments: str) -> None:
        self.file(f"/proc/{pid}/cmdline", "".join(f"{word}\0" for word in arguments))
        self.file(f"/proc/{pid}/comm", "python\n")
        self.file(f"/proc/{pid}/limits", files.LIMITS)
        self.file(f"/proc/{pid}/maps", files.MAPS)
        self.environ(pid, IRONWORKS_STATE=STATE)

    @contextmanager
    def inspect(self) -> Iterator[Inspection]:
        """Look at it while its replica answers."""
        socket = admin_socket_path(self.root / STATE.lstrip("/"), SERVICE)
        with self.replica.serve(socket):
            port = str(self.replica.port)
            command = ("python", "-m", "ironworks", "serve", "--service", SERVICE, "--port", port)
            self.file(f"/proc/{REPLICA}/cmdline", "".join(f"{word}\0" for word in command))
            (self.gpu.home / "port").write_text(port)
            yield Inspection(Host(self.root, _Runner(self)))

    def _libraries(self) -> None:
        folder = "/usr/lib/x86_64-linux-gnu"
        for part in ("libcudnn", "libcudnn_ops"):
            self.library(f"{folder}/{part}.so.9.8.0", f"{part}.so.9")
            self.link(f"{folder}/{part}.so.9", f"{part}.so.9.8.0")
            self.link(f"{folder}/{part}.so", f"{part}.so.9")
        site = "/opt/ironworks/.venv/lib/python3.11/site-packages"
        self.library(
            f"{site}/torch/lib/libtorch_cuda.so",
            "libtorch_cuda.so",
            needed="libcudnn.so.9",
            rpath="$ORIGIN/../../nvidia/cudnn/lib",
        )
        self.library(f"{site}/nvidia/cudnn/lib/libcudnn.so.9", "libcudnn.so.9")

    def _package(self) -> None:
        site = "/opt/ironworks/.venv/lib/python3.11/site-packages"
        code = "answer = 42\n"
        digest = base64.urlsafe_b64encode(hashlib.sha256(code.encode()).digest())
        record = f"demo/__init__.py,sha256={digest.rstrip(b'=').decode()},{len(code)}\n"
        self.file(f"{site}/demo/__init__.py", code)
        self.file(f"{site}/demo-1.0.dist-info/METADATA", "Name: demo\nVersion: 1.0\n\nText\n")
        self.file(f"{site}/demo-1.0.dist-info/RECORD", record)
        self.file("/opt/ironworks/requirements/default.txt", "demo==1.0 \\\n    --hash=x\n")


class _Runner:
    """Real programs from the machine's PATH; torch alone is told, for there is no GPU."""

    def __init__(self, machine: FixtureHost) -> None:
        self._machine = machine
        self._run = ProcessRunner(machine.gpu.env)

    def __call__(self, command: Sequence[str], *, deadline_seconds: float, stdin: str = "") -> Ran:
        if "serving.torch_checks" in command:
            return Ran(tuple(command), 0, json.dumps(self._machine.torch), "", 0.1)
        if command[0].startswith("/"):
            inside = self._machine.root / command[0].lstrip("/")
            command = [str(inside) if inside.exists() else command[0], *command[1:]]
        return self._run(command, deadline_seconds=deadline_seconds, stdin=stdin)
