"""The processes of the control plane: three of Dagster, and the host exporter."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lifecycle.fleet.ports import require_free
from lifecycle.fleet.processes import ProcessError, ProcessTable, tail
from lifecycle.stack.dagster_home import LOCATION, code_server_socket, prepare, read_environment
from lifecycle.stack.graphql import DagsterClient, Health
from lifecycle.stack.settings import HEALTHY_SECONDS, REPOSITORY, StackSettings
from registry.errors import ConflictError

CODE, DAEMON, WEB = "dagster-code", "dagster-daemon", "dagster-web"
EXPORTER = "host-exporter"

# In the order in which they end: no new runs, then no runs, then no page.
ENDING = (DAEMON, CODE, WEB, EXPORTER)


@dataclass(frozen=True)
class Service:
    """One process of the control plane."""

    name: str
    command: tuple[str, ...]
    port: int | None = None


def services(settings: StackSettings, workspace: Path) -> list[Service]:
    """The processes, in the order in which they start.

    A code server apart from the other two lets runs, sensors and the UI share one import of
    the definitions, and lets the UI restart without touching runs.
    """
    python = (sys.executable, "-m")
    code = ("dagster", "api", "grpc", "-m", "lifecycle.definitions", "--location-name", LOCATION)
    return [
        Service(CODE, (*python, *code, "--socket", str(code_server_socket(settings)))),
        Service(DAEMON, (*python, "dagster._daemon", "run", "-w", str(workspace))),
        Service(
            WEB,
            (
                *(*python, "dagster_webserver", "-w", str(workspace)),
                *("-h", settings.host, "-p", str(settings.dagster_port)),
            ),
            port=settings.dagster_port,
        ),
        Service(
            EXPORTER,
            (*python, "lifecycle.host.exporter", "--port", str(settings.metrics_port)),
            port=settings.metrics_port,
        ),
    ]


class ControlPlane:
    """Starts, watches and ends Dagster and the host exporter for one state folder."""

    def __init__(self, settings: StackSettings) -> None:
        self._settings = settings
        self._processes = ProcessTable(settings.paths.run)

    def require_port(self) -> None:
        """Check the ports of the web server and the exporter, unless they are ours already.

        Raises:
            InputError: another process listens there.
        """
        if self._processes.find(WEB) is None:
            require_free(self._settings.host, self._settings.dagster_port, setting="DAGSTER_PORT")
        if self._processes.find(EXPORTER) is None:
            require_free(
                self._settings.host, self._settings.metrics_port, setting="IRONWORKS_EXPORTER_PORT"
            )

    def require_same_ports(self) -> None:
        """Check that what runs already was started with these settings.

        Raises:
            ConflictError: it runs with another port; its sensors would act on that one.
        """
        if not any(self._processes.find(name) for name in ENDING):
            return
        before, now = read_environment(self._settings), self._settings.environment
        changed = [f"{key}={before[key]}" for key in sorted(before) if before[key] != now.get(key)]
        web = self._processes.find(WEB)
        if web is not None and web.port != self._settings.dagster_port:
            changed.append(f"DAGSTER_PORT={web.port}")
        if changed:
            raise ConflictError(
                f"it runs already with other settings: {', '.join(changed)}",
                where=str(self._settings.paths.root),
                fix="`make down` first, with the same STATE",
            )

    def start(self) -> list[str]:
        """Start whichever of them does not run.

        Returns:
            The names of those started.
        """
        missing = [name for name in ENDING if self._processes.find(name) is None]
        if not missing:
            return []
        workspace = prepare(self._settings)
        started = []
        for service in services(self._settings, workspace):
            if service.name not in missing:
                continue
            if service.name == CODE:
                # Left behind by a kill; the server can't bind over it.
                code_server_socket(self._settings).unlink(missing_ok=True)
            self._processes.start(
                service.name,
                service.command,
                log=self.log(service.name),
                port=service.port,
                env=self._settings.environment,
                cwd=REPOSITORY,
            )
            started.append(service.name)
        return started

    def log(self, name: str) -> Path:
        """The log file of one of the processes."""
        return self._settings.paths.log / f"{name}.log"

    def await_healthy(self, client: DagsterClient, say: Callable[[str], None]) -> None:
        """Wait until the code location is loaded and every required daemon beats.

        Raises:
            ProcessError: a process has ended, the definitions do not load, or it takes too long.
        """
        deadline = time.monotonic() + HEALTHY_SECONDS
        last = ""
        while True:
            health = client.health()
            if health.ok:
                return
            if health.summary != last:
                last = health.summary
                say(f"waiting: {last}")
            self._require_running()
            self._require_loadable(health)
            if time.monotonic() > deadline:
                raise ProcessError(
                    f"Dagster is not healthy after {HEALTHY_SECONDS:.0f} s: {last}",
                    where=str(self._settings.paths.log),
                    fix="read the logs there",
                )
            time.sleep(0.5)

    def _require_running(self) -> None:
        for name in (CODE, DAEMON, WEB):
            if self._processes.find(name) is None:
                log = self.log(name)
                raise ProcessError(
                    f"{name} has ended: {' | '.join(tail(log, 3))[:600]}",
                    where=str(log),
                    fix="read the log, then `make up` again",
                )

    def _require_loadable(self, health: Health) -> None:
        if health.load_error:
            raise ProcessError(
                f"the Dagster definitions do not load: {health.load_error[:600]}",
                where=str(self.log(CODE)),
                fix="run `dagster definitions validate -w workspace.yaml`, then `make down up`",
            )
