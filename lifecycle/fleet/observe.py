"""The fleet as it is at one moment: all replicas and the proxy, looked at side by side.

One dead host must not hold up the rest: every look has the same deadline, and what has not
answered by then is reported as silent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar

from lifecycle.fleet.probe import HostedModel, Probe, probe
from lifecycle.fleet.proxy.base import ProxyClient, ProxyServer
from lifecycle.fleet.scrape import Buckets, ReplicaLoad, merge, quantile
from lifecycle.fleet.supervisors.base import ReplicaStatus, ReplicaSupervisor
from registry.errors import IronworksError
from registry.fleet import DesiredReplica
from registry.paths import StatePaths

DEADLINE_SECONDS = 2.0

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class ReplicaObservation:
    """One replica as it is.

    Attributes:
        service: its name.
        host: where it was looked for.
        port: where it was looked for.
        process: whether its supervisor has a process for it; None if it could not say.
        pid: of the API process, None when unknown.
        probe: what it answered over HTTP.
        proxy: how the proxy sees it; None without a proxy, or if that doesn't know it.
    """

    service: str
    host: str
    port: int
    process: bool | None
    pid: int | None = None
    probe: Probe = field(default_factory=Probe)
    proxy: ProxyServer | None = None

    @property
    def live(self) -> bool:
        """Whether the API process answers."""
        return self.probe.live

    @property
    def ready(self) -> bool:
        """Whether it takes work."""
        return self.probe.ready

    @property
    def progressing(self) -> bool:
        """False only if it says itself that work runs and no step ends."""
        return self.probe.progressing is not False

    @property
    def healthy(self) -> bool:
        """Whether it takes work and gets on with it."""
        return self.ready and self.progressing

    @property
    def models(self) -> Mapping[str, HostedModel]:
        """What it serves, by name; empty while it starts or is silent."""
        return self.probe.models

    @property
    def load(self) -> ReplicaLoad:
        """How busy it is; all zero when it could not say."""
        return self.probe.load or ReplicaLoad()

    @property
    def ttft_p95(self) -> float | None:
        """Seconds, over all requests since it started; None before the first."""
        return quantile(self.load.ttft, 0.95)

    def serves(self, model: str, digest: str) -> bool:
        """Whether requests for ``model`` are answered by the version ``digest``."""
        hosted = self.models.get(model)
        return hosted is not None and hosted.state == "ready" and hosted.digest == digest


@dataclass(frozen=True)
class FleetObservation:
    """All declared replicas and the proxy at one moment.

    Attributes:
        at: Unix time in seconds.
        seconds: how long the look took.
        replicas: by service; exactly those that were asked for.
        strangers: replicas that run, or that the proxy knows, and that are not declared.
        proxied: whether there is a proxy.
        proxy_error: why the proxy could not be asked, "" if it could.
    """

    at: float
    seconds: float
    replicas: Mapping[str, ReplicaObservation]
    strangers: Mapping[str, ReplicaObservation] = field(default_factory=dict)
    proxied: bool = False
    proxy_error: str = ""

    @property
    def running(self) -> int:
        """Sequences that run on any replica."""
        return sum(replica.load.running for replica in self.replicas.values())

    @property
    def waiting(self) -> int:
        """Sequences that wait on any replica."""
        return sum(replica.load.waiting for replica in self.replicas.values())

    @property
    def kv_usage(self) -> float:
        """Of the fullest KV cache of the fleet, 0 to 1."""
        return max((replica.load.kv_usage for replica in self.replicas.values()), default=0.0)

    @property
    def ttft(self) -> Buckets:
        """Time to first token over all replicas, cumulative; see `scrape.quantile`."""
        return merge(r.load.ttft for r in self.replicas.values() if r.load.ttft)

    def as_json(self) -> dict[str, Any]:
        """Plain values for a run's metadata or a sensor's cursor, without histograms."""
        value = asdict(self)
        for replica in value["replicas"].values():
            if replica["probe"]["load"] is not None:
                replica["probe"]["load"].pop("ttft")
        return value


def observe(
    paths: StatePaths,
    desired: Collection[DesiredReplica],
    supervisor: ReplicaSupervisor,
    proxy: ProxyClient | None = None,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> FleetObservation:
    """Look at every declared replica and at the proxy, all at once.

    Args:
        paths: state folder, for the admin sockets of replicas on this host.
        desired: which replicas to look at, whatever their desired state.
        supervisor: knows their processes.
        proxy: in front of them, if there is one.
        deadline_seconds: for everything; never exceeded, also when a host is dead.
    """
    began = time.monotonic()
    at = time.time()
    # Not asyncio.run: that waits for the loop's threads, and resolving a name can hold one
    # for minutes.
    loop = asyncio.new_event_loop()
    try:
        seen = loop.run_until_complete(_look(paths, desired, supervisor, proxy, deadline_seconds))
    finally:
        loop.close()
    statuses, probes, (servers, proxy_error), (running, _) = seen
    replicas = {}
    for replica in desired:
        status = statuses[replica.service]
        replicas[replica.service] = ReplicaObservation(
            replica.service,
            replica.host,
            replica.port,
            process=None if status is None else status.running,
            pid=None if status is None else status.pid,
            probe=probes[replica.service],
            proxy=servers.get(replica.service),
        )
    return FleetObservation(
        at=at,
        seconds=time.monotonic() - began,
        replicas=replicas,
        strangers={
            name: _stranger(name, name in (running or ()), servers.get(name))
            for name in sorted({*(running or ()), *servers} - replicas.keys())
        },
        proxied=proxy is not None,
        proxy_error=proxy_error,
    )


async def _look(
    paths: StatePaths,
    desired: Collection[DesiredReplica],
    supervisor: ReplicaSupervisor,
    proxy: ProxyClient | None,
    seconds: float,
) -> tuple[
    dict[str, ReplicaStatus | None],
    dict[str, Probe],
    tuple[Mapping[str, ProxyServer], str],
    tuple[list[str] | None, str],
]:
    services = [replica.service for replica in desired]
    # A thread each: one that hangs must not take the place of another's.
    threads = ThreadPoolExecutor(len(services) + 2, "observe")
    statuses = [_in_thread(threads, partial(supervisor.status, name), seconds) for name in services]
    probes = [
        _within(
            probe(
                f"http://{replica.host}:{replica.port}",
                paths.socket(f"{replica.service}.admin"),
                seconds * 0.9,  # so that it can still say what did answer
            ),
            seconds,
        )
        for replica in desired
    ]
    told, answered, servers, running = await asyncio.gather(
        asyncio.gather(*statuses),
        asyncio.gather(*probes),
        _servers(threads, proxy, seconds),
        _in_thread(threads, supervisor.services, seconds),
    )
    threads.shutdown(wait=False, cancel_futures=True)
    return (
        {name: status for name, (status, _) in zip(services, told, strict=True)},
        dict(zip(services, answered, strict=True)),
        servers,
        running,
    )


def _stranger(service: str, process: bool, server: ProxyServer | None) -> ReplicaObservation:
    return ReplicaObservation(
        service,
        "" if server is None else server.host,
        0 if server is None else server.port,
        process=process,
        proxy=server,
    )


async def _servers(
    threads: Executor, proxy: ProxyClient | None, seconds: float
) -> tuple[Mapping[str, ProxyServer], str]:
    if proxy is None:
        return {}, ""
    servers, error = await _in_thread(threads, proxy.servers, seconds)
    return servers or {}, error


async def _within(probing: Any, seconds: float) -> Probe:
    try:
        async with asyncio.timeout(seconds):
            found: Probe = await probing
            return found
    except TimeoutError:
        text = f"no answer within {seconds:g} s"
        return Probe(reason="does not answer", error=text)


async def _in_thread(
    threads: Executor, call: Callable[[], _Result], seconds: float
) -> tuple[_Result | None, str]:
    """The result of a blocking call, or why there is none."""
    future = asyncio.get_running_loop().run_in_executor(threads, call)
    try:
        async with asyncio.timeout(seconds):
            return await future, ""
    except TimeoutError:
        return None, f"no answer within {seconds:g} s"
    except IronworksError as error:
        return None, error.what
