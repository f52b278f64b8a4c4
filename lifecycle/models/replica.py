"""The replica of this state folder, as the assets and sensors deal with it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lifecycle.fleet.processes import ProcessError
from lifecycle.fleet.supervisors.base import ReplicaSpec, ReplicaSupervisor
from lifecycle.models.rollout import ReplicaView, step_towards
from registry.errors import IronworksError
from registry.paths import StatePaths
from registry.store import Version
from serving.client import ReplicaClient

PROBE_SECONDS = 2.0
"""Deadline of one look at a replica: a hung one must not hold up a sensor."""


@dataclass(frozen=True)
class ReplicaAddress:
    """Where the one replica of a state folder is, running or not."""

    service: str
    port: int
    host: str = "127.0.0.1"


@dataclass(frozen=True)
class Deployment:
    """What was done to make the replica serve a version."""

    step: str
    """``start``, ``swap`` or ``none``."""
    seconds: float


class ManagedReplica:
    """Looks at a replica, and makes it serve a version.

    Args:
        address: where it is.
        paths: the state folder.
        supervisor: starts it when it doesn't run.
    """

    def __init__(
        self, address: ReplicaAddress, paths: StatePaths, supervisor: ReplicaSupervisor
    ) -> None:
        self.address = address
        self._paths = paths
        self._supervisor = supervisor

    def look(self) -> ReplicaView:
        """See what runs and what it serves, within ``PROBE_SECONDS``."""
        if not self._supervisor.status(self.address.service).running:
            return ReplicaView(running=False)
        try:
            with self.client(timeout=PROBE_SECONDS) as client:
                return ReplicaView(running=True, serving=client.serving())
        except IronworksError:
            return ReplicaView(running=True)

    @contextmanager
    def client(self, *, timeout: float) -> Iterator[ReplicaClient]:
        """Open a client of the replica; ``timeout`` in seconds, for each request."""
        with ReplicaClient(
            f"http://{self.address.host}:{self.address.port}",
            admin_socket=self._paths.socket(f"{self.address.service}.admin"),
            timeout=timeout,
        ) as client:
            yield client

    def serve(
        self, version: Version, *, alias: str, deadline_seconds: float, say: Callable[[str], None]
    ) -> Deployment:
        """Make the replica serve ``version``: start it, swap, or do nothing.

        Args:
            version: what to serve under the name of its model.
            alias: the alias that a started replica follows.
            deadline_seconds: how long it may take.
            say: is told each step.

        Raises:
            ProcessError: the replica ended while it started, or took too long.
            IronworksError: the replica refused the version; it goes on with what it had.
        """
        started = time.monotonic()
        step = step_towards(version.model, version.digest, self.look())
        if step == "start":
            say(f"{self.address.service} does not run: starting it with {version.name}")
            self._supervisor.start(
                ReplicaSpec(
                    service=self.address.service,
                    port=self.address.port,
                    host=self.address.host,
                    model=version.model,
                    alias=alias,
                )
            )
            self._await(version, started + deadline_seconds)
        elif step == "swap":
            say(f"{self.address.service} serves another version: swapping to {version.name}")
            with self.client(timeout=deadline_seconds) as client:
                client.swap(version.digest)
        return Deployment(step, time.monotonic() - started)

    def _await(self, version: Version, deadline: float) -> None:
        while time.monotonic() < deadline:
            if self.look().serving.get(version.model) == version.digest:
                return
            if not self._supervisor.status(self.address.service).running:
                raise self._not_up(f"{self.address.service} ended while it loaded {version.name}")
            time.sleep(0.2)
        raise self._not_up(f"{self.address.service} was not ready with {version.name} in time")

    def _not_up(self, what: str) -> ProcessError:
        last = " | ".join(self._supervisor.logs(self.address.service, lines=3))
        return ProcessError(what, where=last[:600], fix="read its log in var/log")
