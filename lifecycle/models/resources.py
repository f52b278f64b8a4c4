"""What the assets work with: the state folder, its registry, and the replicas."""

from pathlib import Path
from typing import Literal

from dagster import ConfigurableResource

from lifecycle.fleet.layout import FleetLayout
from lifecycle.fleet.managed import ManagedFleet
from lifecycle.fleet.supervisors.choice import choose_supervisor
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
    """Where the replicas of the state folder are, and how many to begin with."""

    host: str = "127.0.0.1"
    port: int = 8000
    service: str = ""
    """Of a single replica; empty: ``replica-<port>``."""
    replicas: int = 1
    """More than one: behind a proxy on ``port``, on the ports after it."""
    balance: Literal["leastconn", "prefix"] = "leastconn"
    """How that proxy chooses."""

    @classmethod
    def from_environment(cls) -> "ReplicaResource":
        """Read the variables that ``make up`` sets; see ``FleetLayout``.

        Raises:
            InputError: one of them is not acceptable.
        """
        layout = FleetLayout.from_environment()
        return cls(
            host=layout.host,
            port=layout.port,
            service=layout.service,
            replicas=layout.replicas,
            balance=layout.balance,
        )

    @property
    def layout(self) -> FleetLayout:
        """The addresses."""
        return FleetLayout(self.host, self.port, self.replicas, self.service, self.balance)

    def fleet(self, paths: StatePaths) -> ManagedFleet:
        """The replicas of this host, and the proxy in front of them if there are several."""
        return ManagedFleet(paths, self.layout, choose_supervisor(paths))
