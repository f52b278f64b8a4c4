"""`make status`: what runs in this state folder, and what it serves."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field

from lifecycle.fleet.processes import ProcessRecord, ProcessTable
from lifecycle.fleet.proxy.base import ProxyError
from lifecycle.fleet.proxy.process import SERVICE as PROXY
from lifecycle.fleet.proxy.runtime import HAProxyClient
from lifecycle.stack.dagster_home import read_environment
from lifecycle.stack.graphql import DagsterClient
from lifecycle.stack.services import ENDING, WEB
from lifecycle.stack.settings import StackSettings
from registry.errors import IronworksError
from registry.store import Registry
from serving.client import ReplicaClient, admin_socket_path

PROBE_SECONDS = 5.0


@dataclass(frozen=True)
class ProcessStatus:
    """One process of the stack.

    Attributes:
        name: as in its pid file.
        pid: None when it does not run.
        address: of its HTTP interface, "" if it has none.
        uptime_seconds: since its start.
        state: "running", "ready", "healthy", or what is wrong, in words.
        log: where its output goes.
    """

    name: str
    pid: int | None
    address: str
    uptime_seconds: int
    state: str
    log: str


@dataclass(frozen=True)
class Served:
    """One model in production.

    Attributes:
        model: its registry name.
        version: that the alias names, ``model@version``.
        digest: of that version, hexadecimal.
        served_by: the replicas that answer with it.
    """

    model: str
    version: str
    digest: str
    served_by: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class StackStatus:
    """Everything `make status` shows."""

    state: str
    processes: list[ProcessStatus]
    production: list[Served]

    def as_json(self) -> dict[str, object]:
        """The same as plain values."""
        return asdict(self)


def look(settings: StackSettings) -> StackStatus:
    """Look at every process and at the registry; starts and changes nothing."""
    table = ProcessTable(settings.paths.run)
    running = {record.name: record for record in table.running()}
    host = read_environment(settings).get("IRONWORKS_HOST", settings.host)
    proxy = running.get(PROXY)
    replicas = [record for name, record in running.items() if name not in (*ENDING, PROXY)]
    serving = {record.name: _serving(settings, record, host) for record in replicas}
    processes = [
        _control_plane(settings, name, running.get(name), host) for name in reversed(ENDING)
    ]
    if proxy is not None:
        processes.append(_process(proxy, _rotation(settings), host))
    for record in replicas:
        models = serving[record.name]
        state = "does not answer" if models is None else "ready" if models else "loading"
        processes.append(_process(record, state, host))
    return StackStatus(str(settings.paths.root), processes, _production(settings, serving))


def _rotation(settings: StackSettings) -> str:
    """How many replicas the proxy sends requests to, in words."""
    try:
        servers = HAProxyClient(settings.paths.socket(PROXY)).servers().values()
    except ProxyError:
        return "does not answer"
    return f"{sum(server.in_rotation for server in servers)} of {len(servers)} in rotation"


def _control_plane(
    settings: StackSettings, name: str, record: ProcessRecord | None, host: str
) -> ProcessStatus:
    if record is None:
        return ProcessStatus(name, None, "", 0, "stopped", str(settings.paths.log / f"{name}.log"))
    state = "running"
    if name == WEB:
        with DagsterClient(f"http://{host}:{record.port}", timeout=PROBE_SECONDS) as client:
            health = client.health()
            state = "healthy" if health.ok else health.summary
    return _process(record, state, host)


def _process(record: ProcessRecord, state: str, host: str) -> ProcessStatus:
    address = "" if record.port is None else f"http://{host}:{record.port}"
    uptime = max(0, int(time.time()) - record.started_at)
    return ProcessStatus(record.name, record.pid, address, uptime, state, record.log)


def _serving(settings: StackSettings, record: ProcessRecord, host: str) -> dict[str, str] | None:
    """Digest by model of what a replica is ready to answer with; None if it does not answer."""
    socket = admin_socket_path(settings.paths.root, record.name)
    try:
        with ReplicaClient(
            f"http://{host}:{record.port}", admin_socket=socket, timeout=PROBE_SECONDS
        ) as client:
            models = client.status()["models"]
    except IronworksError:
        return None
    return {model["name"]: model["digest"] for model in models if model["state"] == "ready"}


def _production(settings: StackSettings, serving: dict[str, dict[str, str] | None]) -> list[Served]:
    if not settings.paths.registry.is_dir() or not any(settings.paths.registry.iterdir()):
        return []
    result = []
    with Registry.open(settings.paths.registry, create=False) as registry:
        for alias in registry.aliases():
            if alias.alias != "production":
                continue
            version = registry.version(alias.digest)
            by = [
                name
                for name, models in serving.items()
                if (models or {}).get(alias.model) == alias.digest
            ]
            result.append(Served(alias.model, version.name, alias.digest, by))
    return result
