"""Replicas and engines among the processes of a machine, by their command lines.

Independent of who started them: pid files belong to the local supervisor only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
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
        arguments: its command line.
        environment: its variables as at its start; None if this user may not read them.
    """

    pid: int
    kind: Literal["replica", "engine"]
    service: str
    arguments: tuple[str, ...]
    environment: dict[str, str] | None

    @property
    def state(self) -> Path | None:
        """The state folder that it was given, None if that can't be told."""
        folder = self.option("state") or (self.environment or {}).get(STATE_VARIABLE)
        return Path(folder) if folder else None

    @property
    def port(self) -> int | None:
        """TCP port of a replica's API; None for an engine."""
        if self.kind == "engine":
            return None
        given = self.option("port") or (self.environment or {}).get("IRONWORKS_PORT") or "8000"
        return int(given) if given.isdecimal() else None

    def option(self, name: str) -> str:
        """The value of ``--name`` on its command line, "" if it is not given."""
        found = re.search(rf"\0--{name}[\0=]([^\0]+)", "\0".join(self.arguments))
        return found[1] if found else ""

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
        process = ServingProcess(pid, kind, "", tuple(arguments), _parse(variables))
        if kind == "replica":
            process = replace(process, service=process.option("service") or _default(process))
        found.append(process)
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


def _default(process: ServingProcess) -> str:
    named = (process.environment or {}).get("IRONWORKS_SERVICE")
    return named or f"replica-{process.port}"


def _parse(environ: str | None) -> dict[str, str] | None:
    if environ is None:
        return None
    pairs = (entry.partition("=") for entry in environ.split("\0") if "=" in entry)
    return {name: value for name, _, value in pairs}
