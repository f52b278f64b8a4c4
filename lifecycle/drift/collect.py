"""Asking every replica of the fleet at once; one that is silent holds nobody up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from registry.errors import IronworksError
from registry.paths import StatePaths
from registry.store import Registry
from serving.client import ReplicaClient, admin_socket_path

PROBE_SECONDS = 10.0


@dataclass(frozen=True)
class Target:
    """One replica to ask."""

    service: str
    host: str
    port: int

    def client(self, paths: StatePaths, timeout: float = PROBE_SECONDS) -> ReplicaClient:
        """Connect to it; ``timeout`` in seconds."""
        return ReplicaClient(
            f"http://{self.host}:{self.port}", admin_socket_path(paths.root, self.service), timeout
        )


@dataclass(frozen=True)
class Answered:
    """What a replica said, or why it said nothing."""

    target: Target
    value: Any = None
    problem: str = ""


def targets(registry: Registry) -> list[Target]:
    """The replicas that should run."""
    return [
        Target(replica.service, replica.host, replica.port)
        for replica in registry.fleet.desired()
        if replica.state != "stopped"
    ]


def ask_all(asked: Sequence[Target], question: Callable[[Target], Any]) -> list[Answered]:
    """Put ``question`` to every replica at once, in their order."""

    def ask(target: Target) -> Answered:
        try:
            return Answered(target, question(target))
        except IronworksError as error:
            return Answered(target, problem=str(error))

    with ThreadPoolExecutor(max(1, len(asked)), thread_name_prefix="ask") as threads:
        return list(threads.map(ask, asked))
