"""Replicas and engines among the processes of a machine, by their command lines.

Independent of who started them: pid files belong to the local supervisor only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lifecycle.host.host import Host, HostAccessError
from registry.paths import STATE_VARIABLE

_ENGINE_MODULE = "serving.engine.process"


@dataclass(frozen=True)
class ServingProcess:
    """One process of the data plane.

    Attributes:
        pid: its number.
        kind: the API process of a replica, or an engine.
        service: name of the replica; "" for an engine.
        environment: its variables as at its start; None if this user may not read them.
    """

    pid: int
    kind: Literal["replica", "engine"]
    service: str
    environment: dict[str, str] | None

    @property
    def state(self) -> Path | None:
        """The state folder that it was given."""
        folder = (self.environment or {}).get(STATE_VARIABLE)
        return Path(folder) if folder else None

    def __str__(self) -> str:
        return f"{self.service or self.kind} (pid {self.pid})"


def find_serving_processes(host: Host) -> tuple[ServingProcess, ...]:
    """Every replica and engine, in the order of their pids."""
    found = []
    for path in host.glob("/proc/[0-9]*/cmdline"):
        arguments = (read_if_allowed(host, path) or "").rstrip("\0").split("\0")
        kind = _kind(arguments)
        if kind is None:
            continue
        pid = int(path.split("/")[2])
        variables = read_if_allowed(host, f"/proc/{pid}/environ")
        found.append(ServingProcess(pid, kind, _service(arguments, kind), _parse(variables)))
    return tuple(sorted(found, key=lambda process: process.pid))


def read_if_allowed(host: Host, path: str) -> str | None:
    """The text of a file; None if it is gone or belongs to someone else."""
    try:
        return host.read(path)
    except HostAccessError:
        return None


def _kind(arguments: list[str]) -> Literal["replica", "engine"] | None:
    if _ENGINE_MODULE in arguments:
        return "engine"
    program = arguments[0].rpartition("/")[2]
    if "serve" not in arguments[1:4]:
        return None
    is_module = arguments[1:3] == ["-m", "ironworks"]
    is_script = any(word.rpartition("/")[2] == "ironworks" for word in arguments[:2])
    return "replica" if is_script or (is_module and program.startswith("python")) else None


def _service(arguments: list[str], kind: str) -> str:
    if kind == "engine":
        return ""
    line = " ".join(arguments)
    if named := re.search(r"--service[ =](\S+)", line):
        return named[1]
    port = re.search(r"--port[ =](\d+)", line)
    return f"replica-{port[1] if port else 8000}"


def _parse(environ: str | None) -> dict[str, str] | None:
    if environ is None:
        return None
    pairs = (entry.partition("=") for entry in environ.split("\0") if "=" in entry)
    return {name: value for name, _, value in pairs}
