"""The replicas of one host, as its recovery deals with them: out of rotation, ended, back."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from lifecycle.fleet.managed import ManagedFleet
from registry.errors import IronworksError
from registry.fleet import DesiredReplica, DesiredState
from registry.store import Registry
from serving.client import ReplicaClient

ACTOR = "recover_host"

_STOP_GRACE_SECONDS = 3.0
STOP_SECONDS = _STOP_GRACE_SECONDS + 10.0
"""Longest that `HostReplicas.stop` takes: the grace, and a kill that the kernel delays."""


class HostReplicas:
    """Drains, stops and starts every replica of one host.

    What should be is declared first, so that a reconcile that runs meanwhile wants the same.

    Args:
        fleet: all replicas of the state folder.
        hosts: names and addresses under which those of this host are declared.
    """

    def __init__(
        self, fleet: ManagedFleet, hosts: Collection[str] = ("127.0.0.1", "localhost")
    ) -> None:
        self._fleet = fleet
        self._hosts = {*hosts, fleet.layout.host}

    def in_rotation(self) -> list[str]:
        """Services of this host that should be running, by name."""
        return sorted(r.service for r in self._declared() if r.state == "running")

    def drain(self, services: Collection[str], reason: str, *, seconds: float) -> int:
        """Take them out of rotation, and wait for their requests at most ``seconds``.

        Returns:
            Requests that still ran when the time was over; a hung replica counts as none.
        """
        if not services:
            return 0
        self._declare(services, "drained", reason)
        with ThreadPoolExecutor(len(services)) as pool:
            return sum(pool.map(lambda name: self._drain(name, seconds), services))

    def stop(self, services: Collection[str], reason: str) -> list[str]:
        """End their processes, by force after a grace of 3 s: an engine on a dead GPU hangs.

        Returns:
            Those that still run.
        """
        if not services:
            return []
        self._declare(services, "stopped", reason)
        with ThreadPoolExecutor(len(services)) as pool:
            ended = pool.map(
                lambda name: self._fleet.supervisor.stop(name, grace_seconds=_STOP_GRACE_SECONDS),
                services,
            )
            return [status.service for status in ended if status.running]

    def start(self, services: Collection[str], reason: str, *, seconds: float) -> list[str]:
        """Start them, wait until they are ready, and put them back into rotation.

        Returns:
            Those that were not ready in time.
        """
        if not services:
            return []
        self._declare(services, "running", reason)
        seen = self._fleet.reconcile(deadline_seconds=seconds)
        missing = {action.service for action in seen.pending} | set(seen.failures)
        return sorted(missing & set(services))

    def _drain(self, service: str, seconds: float) -> int:
        replica = next((r for r in self._declared() if r.service == service), None)
        if replica is None or not self._fleet.supervisor.status(service).running:
            return 0
        try:
            if self._fleet.proxy is not None:
                self._fleet.proxy.client.drain(service)
            with ReplicaClient(
                f"http://{replica.host}:{replica.port}",
                admin_socket=self._fleet.paths.socket(f"{service}.admin"),
                timeout=seconds,
            ) as client:
                return client.drain(seconds)
        except IronworksError:
            return 0  # it does not answer: it has no request that could still end well

    def _declared(self) -> list[DesiredReplica]:
        return [r for r in self._fleet.desired() if r.host in self._hosts]

    def _declare(self, services: Collection[str], state: DesiredState, reason: str) -> None:
        with Registry.open(self._fleet.paths.registry) as registry:
            for replica in registry.fleet.desired():
                if replica.service in services:
                    registry.fleet.set(replace(replica, state=state), actor=ACTOR, reason=reason)
