"""What any process manager must be able to do with a replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class ReplicaSpec:
    """A replica as it should run.

    Attributes:
        service: its name in the audit log, the pid file and the metrics.
        port: TCP port of its HTTP interface.
        model: registry name of the model it serves.
        alias: which alias of the model it follows.
        host: address that it listens on.
        env: settings beside these, as IRONWORKS_… variables.
    """

    service: str
    port: int
    model: str
    alias: str = "production"
    host: str = "127.0.0.1"
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ReplicaStatus:
    """A replica as its process manager sees it; says nothing about its readiness.

    Attributes:
        service: its name.
        running: whether the process exists.
        pid: of the API process, None when it does not run.
        port: TCP port, None when unknown.
        log: where its output goes.
    """

    service: str
    running: bool
    pid: int | None
    port: int | None
    log: Path

    @property
    def base_url(self) -> str | None:
        """Address of the HTTP interface, None when the port is unknown."""
        return None if self.port is None else f"http://127.0.0.1:{self.port}"


class ReplicaSupervisor(Protocol):
    """Starts and ends replicas; safe to call twice and after a crash in the middle."""

    def start(self, spec: ReplicaSpec) -> ReplicaStatus:
        """Start the replica and return at once; no-op if it runs on that port already.

        Raises:
            InputError: the port is taken by another process.
            ConflictError: the service runs with another specification.
        """
        ...

    def stop(self, service: str, *, grace_seconds: float = 40) -> ReplicaStatus:
        """Ask it to drain and exit, kill it after the grace; no-op if it does not run."""
        ...

    def drain(self, service: str) -> ReplicaStatus:
        """Take it out of rotation: running requests end, new ones are refused.

        Raises:
            NotFoundError: the service does not run.
        """
        ...

    def status(self, service: str) -> ReplicaStatus:
        """How it stands; an unknown service is one that does not run."""
        ...

    def services(self) -> list[str]:
        """Names of the replicas that have a process, declared or not."""
        ...

    def logs(self, service: str, lines: int = 100) -> list[str]:
        """The last lines it wrote."""
        ...
