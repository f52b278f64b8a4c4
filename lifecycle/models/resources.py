"""What the model assets work with: the state folder, its registry, and the replica."""

import os
from pathlib import Path

from dagster import ConfigurableResource

from lifecycle.fleet.supervisors.local import LocalSupervisor
from lifecycle.models.replica import ManagedReplica, ReplicaAddress
from registry.errors import InputError
from registry.paths import StatePaths
from registry.store import Registry


class StateFolder(ConfigurableResource):  # type: ignore[type-arg]
    """The state folder; everything the assets hand to each other lies in it."""

    root: str = ""
    """Absolute path; empty takes IRONWORKS_STATE, or ./var."""

    @property
    def paths(self) -> StatePaths:
        """The places inside the folder."""
        return StatePaths(Path(self.root)) if self.root else StatePaths.from_env()

    def registry(self) -> Registry:
        """Open the registry of this folder; use it as a context manager."""
        return Registry.open(self.paths.registry)


class ReplicaResource(ConfigurableResource):  # type: ignore[type-arg]
    """Which replica ``deployed_version`` acts on."""

    host: str = "127.0.0.1"
    port: int = 8000
    service: str = ""
    """Empty: ``replica-<port>``."""

    @classmethod
    def from_environment(cls) -> "ReplicaResource":
        """Read the variables that the replica itself reads (``serving.settings``).

        Raises:
            InputError: the port is not a number.
        """
        port = os.environ.get("IRONWORKS_PORT") or "8000"
        if not port.isdecimal():
            raise InputError("the port is not a number", where="IRONWORKS_PORT", fix="such as 8000")
        return cls(
            host=os.environ.get("IRONWORKS_HOST") or "127.0.0.1",
            port=int(port),
            service=os.environ.get("IRONWORKS_SERVICE", ""),
        )

    def managed(self, paths: StatePaths) -> ManagedReplica:
        """The replica, run as a process of this host."""
        address = ReplicaAddress(self.service or f"replica-{self.port}", self.port, self.host)
        return ManagedReplica(address, paths, LocalSupervisor(paths))
