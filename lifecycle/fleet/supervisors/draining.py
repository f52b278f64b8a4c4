"""Taking a replica out of rotation through its admin socket, whoever runs its process."""

from __future__ import annotations

from lifecycle.fleet.supervisors.base import ReplicaStatus
from registry.errors import NotFoundError
from registry.paths import StatePaths
from serving.client import ReplicaClient


def drain_replica(paths: StatePaths, status: ReplicaStatus) -> ReplicaStatus:
    """Let running requests of a replica on this host end; new ones are refused.

    Raises:
        NotFoundError: it does not run.
        ReplicaUnreachableError: it does not answer.
    """
    if not status.running or status.base_url is None:
        raise NotFoundError("no such replica runs", where=status.service, fix="see `make status`")
    socket = paths.socket(f"{status.service}.admin")
    with ReplicaClient(status.base_url, admin_socket=socket) as client:
        client.drain()
    return status
