"""Replicas as processes of this host: each in its own session, with a pid file and a log.

They outlive whoever started them (a Dagster run, `make up`), and are found again by their
pid files. Nothing restarts a replica that dies but the lifecycle's sensors.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from lifecycle.fleet.ports import require_free
from lifecycle.fleet.processes import ProcessRecord, ProcessTable, tail
from lifecycle.fleet.supervisors.base import ReplicaSpec, ReplicaStatus
from lifecycle.fleet.supervisors.draining import drain_replica
from registry.errors import ConflictError
from registry.paths import StatePaths

_SERVE = ("-m", "ironworks", "serve")

# Exceeds the 30 s that a replica gives its running requests, so that it ends by itself.
STOP_SECONDS = 40.0


class LocalSupervisor:
    """The `ReplicaSupervisor` of one state folder.

    Args:
        paths: the state folder; its ``run`` holds the pid files, its ``log`` the logs.
    """

    def __init__(self, paths: StatePaths) -> None:
        self._paths = paths
        self._processes = ProcessTable(paths.run)

    def start(self, spec: ReplicaSpec) -> ReplicaStatus:
        """Start the replica and return at once; no-op if it runs as specified already.

        Raises:
            InputError: the port is taken by another process.
            ConflictError: the service runs with another specification.
        """
        command = (
            *(sys.executable, *_SERVE),
            *("--service", spec.service, "--model", spec.model, "--alias", spec.alias),
            *("--host", spec.host, "--port", str(spec.port)),
        )
        running = self._processes.find(spec.service)
        if running is None:
            running = self._start(spec, command)
        if running.command[1:] != command[1:]:
            raise ConflictError(
                f"{spec.service} runs otherwise: {' '.join(running.command[3:])}",
                where=f"pid {running.pid}",
                fix="stop it first, or give the new replica another service name",
            )
        return self._status(running)

    def _start(self, spec: ReplicaSpec, command: Sequence[str]) -> ProcessRecord:
        require_free(spec.host, spec.port, setting="PORT")
        try:
            return self._processes.start(
                spec.service,
                command,
                log=self._log(spec.service),
                port=spec.port,
                env={**spec.env, "IRONWORKS_STATE": str(self._paths.root)},
            )
        except ConflictError:
            running = self._processes.find(spec.service)  # someone else has just started it
            if running is None:
                raise
            return running

    def stop(self, service: str, *, grace_seconds: float = STOP_SECONDS) -> ReplicaStatus:
        """Ask it to drain and exit, kill its group after the grace; no-op if it does not run.

        The default grace exceeds the replica's own drain deadline of 30 s, so that it
        records its unload by itself.
        """
        self._processes.stop(service, grace_seconds=grace_seconds)
        return self.status(service)

    def drain(self, service: str) -> ReplicaStatus:
        """Take it out of rotation: running requests end, new ones are refused.

        Raises:
            NotFoundError: the service does not run.
        """
        return drain_replica(self._paths, self.status(service))

    def status(self, service: str) -> ReplicaStatus:
        """How it stands; an unknown service is one that does not run."""
        record = self._processes.find(service)
        if record is not None:
            return self._status(record)
        return ReplicaStatus(service, running=False, pid=None, port=None, log=self._log(service))

    def services(self) -> list[str]:
        """Names of the replicas that have a process, declared or not."""
        running = self._processes.running()
        return [record.name for record in running if record.command[1:4] == _SERVE]

    def logs(self, service: str, lines: int = 100) -> list[str]:
        """The last lines it wrote."""
        return tail(self._log(service), lines)

    def _log(self, service: str) -> Path:
        return self._paths.log / f"{service}.log"

    @staticmethod
    def _status(record: ProcessRecord) -> ReplicaStatus:
        return ReplicaStatus(
            record.name,
            running=record.is_running(),
            pid=record.pid,
            port=record.port,
            log=Path(record.log),
        )
