"""Where the stack runs: state folder, ports, and the model it starts with."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from lifecycle.fleet.layout import (
    BALANCE_VARIABLE,
    MAX_REPLICAS,
    REPLICAS_VARIABLE,
    FleetLayout,
)
from lifecycle.fleet.proxy.config import Balance
from registry.errors import InputError
from registry.paths import STATE_VARIABLE, StatePaths

REPOSITORY = Path(__file__).resolve().parents[2]

THREADS_VARIABLE = "IRONWORKS_THREADS"

# Short enough that a person or a test does not wait, long enough for a slow disk.
HEALTHY_SECONDS = 180.0


@dataclass(frozen=True)
class StackSettings:
    """What `make up` starts.

    Attributes:
        paths: the state folder.
        port: TCP port of the HTTP API.
        dagster_port: TCP port of the Dagster UI.
        host: address both listen on; Dagster has no login, so never a public one.
        replicas: how many; more than one run behind a proxy on ``port``, on the ports after it.
        balance: how that proxy chooses: ``leastconn`` or ``prefix``.
        exporter_port: TCP port of the host exporter; 0: the UI's plus 1000.
        model: registry name of the demo model.
        version: its version.
    """

    paths: StatePaths = field(default_factory=StatePaths.from_env)
    port: int = 8000
    dagster_port: int = 3000
    host: str = "127.0.0.1"
    exporter_port: int = 0
    model: str = "smollm2-135m"
    version: str = "v1"
    replicas: int = 1
    balance: Balance = "leastconn"

    def __post_init__(self) -> None:
        for setting, port in (("PORT", self.port), ("DAGSTER_PORT", self.dagster_port)):
            if not 1 <= port <= 65535:
                raise InputError(
                    f"{port} is no TCP port", where=setting, fix="choose one from 1024 to 65535"
                )
        if not 1 <= self.replicas <= MAX_REPLICAS:
            raise InputError(
                f"{self.replicas} replicas can't be run",
                where="REPLICAS",
                fix=f"choose 1 to {MAX_REPLICAS}",
            )
        last = self.port + (self.replicas if self.replicas > 1 else 0)
        if self.port <= self.dagster_port <= last:
            raise InputError(
                f"two servers can't listen on port {self.dagster_port}",
                where="PORT, DAGSTER_PORT",
                fix=f"choose a Dagster port outside {self.port} to {last}"
                if last > self.port
                else "choose two different ports",
            )

    @property
    def layout(self) -> FleetLayout:
        """Where the replicas are."""
        service = "" if self.replicas > 1 else f"replica-{self.port}"
        return FleetLayout(self.host, self.port, self.replicas, service, self.balance)

    @property
    def partition(self) -> str:
        """Dagster partition of the demo model's version."""
        return f"{self.model}@{self.version}"

    @property
    def api_url(self) -> str:
        """Address of the HTTP API: of the replica, or of the proxy."""
        return f"http://{self.host}:{self.port}"

    @property
    def dagster_url(self) -> str:
        """Address of the Dagster UI."""
        return f"http://{self.host}:{self.dagster_port}"

    @property
    def metrics_port(self) -> int:
        """TCP port of the host exporter."""
        above = self.dagster_port + 1000
        return self.exporter_port or (above if above <= 65535 else self.dagster_port - 1000)

    @property
    def environment(self) -> dict[str, str]:
        """Variables that every process of the stack gets."""
        return {
            **self._threads,
            STATE_VARIABLE: str(self.paths.root),
            "IRONWORKS_HOST": self.host,
            "IRONWORKS_PORT": str(self.port),
            "IRONWORKS_SERVICE": self.layout.service,
            REPLICAS_VARIABLE: str(self.replicas),
            BALANCE_VARIABLE: self.balance,
            "IRONWORKS_EXPORTER_PORT": str(self.metrics_port),
            "DAGSTER_HOME": str(self.paths.dagster),
            "DAGSTER_DISABLE_TELEMETRY": "1",
            "PYTHONUNBUFFERED": "1",
            # Dagster's log lines are read in files: no colour codes.
            "NO_COLOR": "1",
        }

    @property
    def _threads(self) -> dict[str, str]:
        """Several engines on one CPU share its cores, unless the user has decided."""
        if self.replicas == 1 or THREADS_VARIABLE in os.environ:
            return {}
        return {THREADS_VARIABLE: str(max(1, (os.cpu_count() or 1) // self.replicas))}
