"""The host exporter: one small process per host that looks at its GPUs for Prometheus.

``ironworks exporter`` or ``python -m lifecycle.host.exporter``. Each look is a child process
with a deadline, so that a hung driver never hangs the exporter; what it then shows is the age
of the last look that succeeded. It holds no device file open between two looks.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry, start_http_server

from lifecycle.host.commands import AbandonedChildrenError
from lifecycle.host.exporter_metrics import HostCollector, Snapshot
from lifecycle.host.host import Host, this_host
from lifecycle.host.nvml_errors import Standing
from lifecycle.host.recovery import record
from lifecycle.host.watch import HostView, look
from registry.errors import InputError
from registry.paths import STATE_VARIABLE, StatePaths

INTERVAL_SECONDS = 5.0

exporter_app = typer.Typer()


class Exporter:
    """Looks at the GPUs at an interval and remembers what it saw.

    Args:
        host: which.
        paths: state folder, for the record of recoveries.
    """

    def __init__(self, host: Host, paths: StatePaths) -> None:
        self._host = host
        self._paths = paths
        self._started = host.clock.time()
        self._view: HostView | None = None
        self._last_success: float | None = None
        self._failures: Counter[str] = Counter()
        self._xids: Counter[tuple[str, int]] = Counter()
        self._last_sequence = -1
        self._lock = threading.Lock()

    def look(self) -> None:
        """Look once."""
        try:
            view = look(self._host)
        except AbandonedChildrenError:
            with self._lock:
                self._failures["AbandonedChildren"] += 1
            return
        with self._lock:
            self._view = view
            error = view.nvml.error
            if error is None or error.standing is Standing.ABSENT:
                self._last_success = view.at
            else:
                self._failures[error.name] += 1
            for event in view.xids:
                if event.sequence > self._last_sequence:
                    self._xids[event.pci_address, event.xid] += 1
                    self._last_sequence = event.sequence

    def snapshot(self) -> Snapshot:
        """What is known now."""
        with self._lock:
            return Snapshot(
                self._view,
                self._started,
                self._last_success,
                dict(self._failures),
                dict(self._xids),
                record.load(self._paths),
            )

    def run(self, interval: float, until: Callable[[float], bool]) -> None:
        """Look every ``interval`` seconds until ``until(seconds to wait)`` is true."""
        while True:
            self.look()
            if until(interval):
                return


@exporter_app.command()
def exporter(
    port: Annotated[int, typer.Option(envvar="IRONWORKS_EXPORTER_PORT")] = 4000,
    address: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    interval: Annotated[float, typer.Option(help="Seconds between looks.")] = INTERVAL_SECONDS,
    state: Annotated[Path, typer.Option(envvar=STATE_VARIABLE)] = Path("var"),
) -> None:
    """Show this host's GPUs to Prometheus, on /metrics."""
    host = this_host()
    watcher = Exporter(host, StatePaths(state.resolve()))
    registry = CollectorRegistry()
    registry.register(HostCollector(watcher.snapshot, host.clock.time))
    try:
        start_http_server(port, addr=address, registry=registry)
    except OSError as error:
        raise InputError(
            f"the exporter can't listen: {error.strerror}",
            where=f"{address}:{port}",
            fix="choose another --port",
        ) from error
    watcher.run(interval, threading.Event().wait)


if __name__ == "__main__":
    exporter_app()
