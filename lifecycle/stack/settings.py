"""Where the stack runs: state folder, ports, and the model it starts with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from registry.errors import InputError
from registry.paths import STATE_VARIABLE, StatePaths

REPOSITORY = Path(__file__).resolve().parents[2]

# Short enough that a person or a test does not wait, long enough for a slow disk.
HEALTHY_SECONDS = 180.0


@dataclass(frozen=True)
class StackSettings:
    """What `make up` starts.

    Attributes:
        paths: the state folder.
        port: TCP port of the replica's HTTP API.
        dagster_port: TCP port of the Dagster UI.
        host: address both listen on; Dagster has no login, so never a public one.
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

    def __post_init__(self) -> None:
        for setting, port in (("PORT", self.port), ("DAGSTER_PORT", self.dagster_port)):
            if not 1 <= port <= 65535:
                raise InputError(
                    f"{port} is no TCP port", where=setting, fix="choose one from 1024 to 65535"
                )
        if self.port == self.dagster_port:
            raise InputError(
                f"both servers can't listen on port {self.port}",
                where="PORT, DAGSTER_PORT",
                fix="choose two different ports",
            )

    @property
    def service(self) -> str:
        """Name of the replica."""
        return f"replica-{self.port}"

    @property
    def partition(self) -> str:
        """Dagster partition of the demo model's version."""
        return f"{self.model}@{self.version}"

    @property
    def api_url(self) -> str:
        """Address of the replica's HTTP API."""
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
            STATE_VARIABLE: str(self.paths.root),
            "IRONWORKS_HOST": self.host,
            "IRONWORKS_PORT": str(self.port),
            "IRONWORKS_SERVICE": self.service,
            "IRONWORKS_EXPORTER_PORT": str(self.metrics_port),
            "DAGSTER_HOME": str(self.paths.dagster),
            "DAGSTER_DISABLE_TELEMETRY": "1",
            "PYTHONUNBUFFERED": "1",
            # Dagster's log lines are read in files: no colour codes.
            "NO_COLOR": "1",
        }
