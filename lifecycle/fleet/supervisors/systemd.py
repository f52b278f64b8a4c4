"""Replicas as systemd services: ``ironworks-serving@PORT.service``, on this host or another.

systemd starts them at boot and again when they fail; what each serves is in a file of
variables that is written here and read by the unit. The user that Dagster runs as needs a
polkit rule to start and stop exactly these units.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from lifecycle.fleet.processes import ProcessError
from lifecycle.fleet.supervisors.base import ReplicaSpec, ReplicaStatus
from lifecycle.fleet.supervisors.draining import drain_replica
from registry.errors import ConflictError, InputError
from registry.paths import StatePaths

COMMAND_SECONDS = 10.0
"""For a question to systemd, over ssh too; a host that is gone must not hold us up."""

STOP_SECONDS = 45.0
"""``TimeoutStopSec`` of the unit: exceeds the 30 s that a replica gives running requests."""

_SERVICE = re.compile(r"replica-(\d{1,5})")
_UNIT = re.compile(r"ironworks-serving@(\d{1,5})\.service")
# A unit that is being stopped or restarted still has its process.
_ALIVE = ("active", "activating", "reloading", "deactivating")


class SystemdSupervisor:
    """The `ReplicaSupervisor` of one host's systemd.

    Args:
        paths: the state folder; its ``run`` holds the files of variables.
        host: for ``systemctl -H``; empty is this host. On another host the variables are
            its own deployment's, so a start there changes nothing of what is served.
        timeout: seconds for one question to systemd.
    """

    def __init__(self, paths: StatePaths, host: str = "", timeout: float = COMMAND_SECONDS) -> None:
        self._paths = paths
        self._host = host
        self._timeout = timeout

    def start(self, spec: ReplicaSpec) -> ReplicaStatus:
        """Start the unit and return at once; no-op if it runs as specified already.

        Raises:
            InputError: the service's name does not tell its port.
            ConflictError: the unit runs with another specification.
            ProcessError: systemd refuses, or does not answer in time.
        """
        port = _port(spec.service)
        if port != spec.port:
            raise InputError(
                f"{spec.service} can't listen on port {spec.port}: its unit is named by the port",
                where="service",
                fix=f"call it replica-{spec.port}",
            )
        text = variables(spec, self._paths)
        file = self._variables_file(port)
        status = self.status(spec.service)
        if status.running:
            if not self._host and (not file.exists() or file.read_text() != text):
                raise ConflictError(
                    f"{spec.service} runs otherwise", where=str(file), fix="stop it first"
                )
            return status
        if not self._host:
            partial = file.with_suffix(".partial")
            partial.write_text(text)
            partial.chmod(0o600)
            partial.replace(file)
        # A unit that failed too often is refused until somebody has said that it may again.
        self._systemctl("reset-failed", _unit(port), may_fail=True)
        self._systemctl("start", "--no-block", _unit(port))
        return self.status(spec.service)

    def stop(self, service: str, *, grace_seconds: float = STOP_SECONDS) -> ReplicaStatus:
        """Ask it to drain and exit, kill it after the grace; no-op if it does not run.

        Raises:
            ProcessError: systemd refuses, or does not answer in time.
        """
        unit = _unit(_port(service))
        if not self.status(service).running:
            return self.status(service)
        try:
            self._systemctl("stop", unit, seconds=grace_seconds)
        except subprocess.TimeoutExpired:
            self._systemctl("kill", "--signal=SIGKILL", unit, may_fail=True)
            self._systemctl("stop", unit)
        return self.status(service)

    def drain(self, service: str) -> ReplicaStatus:
        """Take it out of rotation: running requests end, new ones are refused.

        Raises:
            NotFoundError: the service does not run.
            InputError: it is on another host: its admin socket can't be reached.
        """
        if self._host:
            raise InputError(
                "a replica on another host is drained at the proxy",
                where=f"{service} on {self._host}",
                fix="put it behind HAProxy, or stop it: it drains by itself",
            )
        return drain_replica(self._paths, self.status(service))

    def status(self, service: str) -> ReplicaStatus:
        """How it stands; an unknown unit is one that does not run.

        Raises:
            ProcessError: systemd does not answer in time.
        """
        port = _port(service)
        properties = "--property=ActiveState,MainPID"
        told = self._ask("show", properties, _unit(port))
        fields = dict(line.partition("=")[::2] for line in told.splitlines())
        running = fields.get("ActiveState") in _ALIVE
        pid = int(fields.get("MainPID") or 0) or None
        return ReplicaStatus(
            service,
            running=running,
            pid=pid if running else None,
            port=port if running else None,
            log=Path("journal") / _unit(port),
        )

    def services(self) -> list[str]:
        """Names of the replicas that have a process, declared or not."""
        told = self._ask(
            *("list-units", "--plain", "--no-legend", f"--state={','.join(_ALIVE)}"),
            "ironworks-serving@*.service",
        )
        return [f"replica-{port}" for port in _UNIT.findall(told)]

    def logs(self, service: str, lines: int = 100) -> list[str]:
        """The last lines it wrote to the journal; none where that can't be read."""
        unit = _unit(_port(service))
        command = ["journalctl", "--unit", unit, "--lines", str(lines), "--output=cat"]
        if self._host:
            command = ["ssh", self._host, *command]
        try:
            told = subprocess.run(
                [*command, "--no-pager"], capture_output=True, text=True, timeout=self._timeout
            )
        except (OSError, subprocess.TimeoutExpired):
            return []
        return told.stdout.splitlines()[-lines:]

    def _variables_file(self, port: int) -> Path:
        return self._paths.run / f"serving@{port}.env"

    def _ask(self, *arguments: str) -> str:
        """What systemd answers to a question.

        Raises:
            ProcessError: it refuses, or does not answer in time.
        """
        try:
            return self._systemctl(*arguments)
        except subprocess.TimeoutExpired as error:
            raise ProcessError(
                f"systemd does not answer within {self._timeout:g} s",
                where=self._host or "this host",
                fix="see whether the host is up",
            ) from error

    def _systemctl(
        self, *arguments: str, seconds: float | None = None, may_fail: bool = False
    ) -> str:
        command = ["systemctl", *(("-H", self._host) if self._host else ()), *arguments]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=seconds or self._timeout
            )
        except OSError as error:
            raise ProcessError(
                f"systemctl can't be run: {error.strerror}", where="PATH", fix="use local replicas"
            ) from error
        if done.returncode != 0 and not may_fail:
            raise ProcessError(
                f"systemd refuses to {arguments[0]}: {done.stderr.strip()[:400]}",
                where=arguments[-1],
                fix=f"systemctl status {arguments[-1]}",
            )
        return done.stdout


def variables(spec: ReplicaSpec, paths: StatePaths) -> str:
    """The unit's file of variables (systemd.exec(5), EnvironmentFile=)."""
    values: Mapping[str, str] = {
        "IRONWORKS_STATE": str(paths.root),
        "IRONWORKS_SERVICE": spec.service,
        "IRONWORKS_MODEL": spec.model,
        "IRONWORKS_ALIAS": spec.alias,
        "IRONWORKS_HOST": spec.host,
        "IRONWORKS_PORT": str(spec.port),
        **spec.env,
    }
    return "".join(f"{name}={_quoted(value)}\n" for name, value in values.items())


def unit_template(paths: StatePaths, program: Path, user: str) -> str:
    """The text of ``ironworks-serving@.service``.

    Args:
        paths: the state folder, the only one that a replica writes to.
        program: the ``ironworks`` command of the installation.
        user: whom replicas run as.
    """
    return f"""\
[Unit]
Description=Ironworks replica on port %i
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
Type=exec
User={user}
EnvironmentFile={paths.run}/serving@%i.env
Environment=PYTHONUNBUFFERED=1
ExecStart={program} serve
Restart=on-failure
RestartSec=2
# The replica drains at SIGTERM and ends its engines itself; what is left is killed.
KillMode=mixed
TimeoutStopSec={STOP_SECONDS:.0f}
LimitNOFILE=65536
NoNewPrivileges=yes
ProtectSystem=strict
# Sockets of a state folder with a long path are in /tmp, so it is not private.
ReadWritePaths={paths.root} /tmp

[Install]
WantedBy=multi-user.target
"""


def _unit(port: int) -> str:
    return f"ironworks-serving@{port}.service"


def _port(service: str) -> int:
    found = _SERVICE.fullmatch(service)
    if found is None:
        raise InputError(
            f"{service[:60]!r} does not tell the port of its unit",
            where="service",
            fix="a replica under systemd is called replica-PORT",
        )
    return int(found.group(1))


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
