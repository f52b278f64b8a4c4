"""The replicas of one host, as its recovery deals with them: out of rotation, ended, back."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from lifecycle.fleet.proxy.base import ProxyClient
from lifecycle.fleet.supervisors.base import ReplicaSpec, ReplicaSupervisor
from registry.errors import IronworksError
from registry.fleet import DesiredReplica
from registry.paths import StatePaths
from registry.store import Registry
from serving.client import ReplicaClient

ACTOR = "recover_host"

_POLL_SECONDS = 0.2
_STOP_GRACE_SECONDS = 3.0


class HostReplicas:
    """Drains, stops and starts every replica of one host.

    Args:
        paths: the state folder.
        supervisor: runs them.
        proxy: in front of them, if there is one.
        hosts: names and addresses under which replicas of this host are declared.
    """

    def __init__(
        self,
        paths: StatePaths,
        supervisor: ReplicaSupervisor,
        proxy: ProxyClient | None = None,
        hosts: Collection[str] = ("127.0.0.1", "localhost"),
    ) -> None:
        self._paths = paths
        self._supervisor = supervisor
        self._proxy = proxy
        self._hosts = set(hosts)

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
                lambda name: self._supervisor.stop(name, grace_seconds=_STOP_GRACE_SECONDS),
                services,
            )
            return [status.service for status in ended if status.running]

    def start(self, services: Collection[str], reason: str, *, seconds: float) -> list[str]:
        """Start them, wait until they are ready, and put them back into rotation.

        Returns:
            Those that were not ready in time.
        """
        self._declare(services, "running", reason)
        wanted = [r for r in self._declared() if r.service in services]
        for replica in wanted:
            self._supervisor.start(
                ReplicaSpec(
                    service=replica.service,
                    port=replica.port,
                    model=replica.model,
                    alias=replica.alias,
                    host=replica.host,
                    env={} if replica.device == "auto" else {"IRONWORKS_DEVICE": replica.device},
                )
            )
        return self._await_ready(wanted, seconds)

    def _await_ready(self, wanted: Iterable[DesiredReplica], seconds: float) -> list[str]:
        deadline = time.monotonic() + seconds
        missing = {replica.service: replica for replica in wanted}
        while missing and time.monotonic() < deadline:
            for name, replica in list(missing.items()):
                with self._client(replica, timeout=1.0) as client:
                    if not client.readyz():
                        continue
                del missing[name]
                if self._proxy is not None:
                    self._proxy.ready(name, weight=replica.weight)
            time.sleep(_POLL_SECONDS)
        return sorted(missing)

    def _drain(self, service: str, seconds: float) -> int:
        replica = next((r for r in self._declared() if r.service == service), None)
        if replica is None or not self._supervisor.status(service).running:
            return 0
        try:
            if self._proxy is not None:
                self._proxy.drain(service)
            with self._client(replica, timeout=seconds) as client:
                return client.drain(seconds)
        except IronworksError:
            return 0  # it does not answer: it has no request that could still end well

    def _client(self, replica: DesiredReplica, *, timeout: float) -> ReplicaClient:
        return ReplicaClient(
            f"http://{replica.host}:{replica.port}",
            admin_socket=self._paths.socket(f"{replica.service}.admin"),
            timeout=timeout,
        )

    def _declared(self) -> list[DesiredReplica]:
        with Registry.open(self._paths.registry) as registry:
            return [r for r in registry.fleet.desired() if r.host in self._hosts]

    def _declare(self, services: Collection[str], state: str, reason: str) -> None:
        with Registry.open(self._paths.registry) as registry:
            for replica in registry.fleet.desired():
                if replica.service in services:
                    registry.fleet.set(
                        replace(replica, state=state),  # type: ignore[arg-type]
                        actor=ACTOR,
                        reason=reason,
                    )
