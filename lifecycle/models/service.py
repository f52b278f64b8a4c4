"""Brings a version to every replica that should serve it, and asks them as clients do."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lifecycle.fleet.managed import DRAIN_SECONDS, ManagedFleet
from lifecycle.fleet.processes import ProcessError
from lifecycle.fleet.proxy.process import HAProxyProcess
from lifecycle.fleet.rollout import Wish, plan_rollout
from lifecycle.models.replica import Answer, Deployment, ManagedReplica, ReplicaAddress
from lifecycle.models.rollout import ReplicaView
from registry.errors import NotFoundError
from registry.fleet import DesiredReplica
from registry.store import Version
from serving.client import ReplicaClient

_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class ReplicaChange:
    """What was done to one replica."""

    service: str
    step: Literal["start", "swap", "rolling", "none"]
    seconds: float


class ServedModels:
    """The models that a fleet serves.

    Args:
        fleet: its replicas.
    """

    def __init__(self, fleet: ManagedFleet) -> None:
        self.fleet = fleet
        self.changes: list[ReplicaChange] = []
        """What the last `serve` did, replica by replica."""

    @property
    def name(self) -> str:
        """What clients talk to, for people."""
        layout = self.fleet.layout
        return f"the replicas behind port {layout.port}" if layout.proxied else self.tag

    @property
    def tag(self) -> str:
        """What a run that changes them is tagged with: one such run at a time."""
        layout = self.fleet.layout
        if layout.proxied:
            return f"fleet-{layout.port}"
        return layout.initial("model", "production")[0].service

    def views(self, model: str) -> list[ReplicaView]:
        """Look at every replica that should serve ``model``; one that isn't declared too.

        Where other models are declared and this one isn't, those are shown.
        """
        declared = [r for r in self.fleet.desired() if self.fleet.layout.holds(r)]
        mine = [r for r in declared if r.model == model and r.state == "running"]
        if not declared:
            mine = self.fleet.layout.initial(model, "production")
        return [self._replica(replica).look() for replica in mine or declared]

    def ask(self, model: str, prompt: str, *, max_tokens: int, timeout: float) -> Answer:
        """Send one greedy chat request where clients send theirs; ``timeout`` in seconds."""
        layout = self.fleet.layout
        entry = ReplicaAddress("entry", layout.port, layout.host)
        replica = ManagedReplica(entry, self.fleet.paths, self.fleet.supervisor)
        return replica.ask(model, prompt, max_tokens=max_tokens, timeout=timeout)

    def serve(
        self,
        version: Version,
        *,
        alias: str,
        actor: str,
        deadline_seconds: float,
        wish: Wish,
        say: Callable[[str], None],
    ) -> Deployment:
        """Make every replica serve ``version``: start, swap or replace it, or do nothing.

        Args:
            version: what to serve under the name of its model.
            alias: the alias that started replicas follow.
            actor: named in the audit log where replicas have to be declared first.
            deadline_seconds: how long it may take.
            wish: how replicas that serve another version are changed.
            say: is told each step.

        Raises:
            ProcessError: a replica ended while it started, or took too long.
            ConflictError: there is no way without an interruption.
            IronworksError: a replica refused the version; it goes on with what it had.
        """
        began = time.monotonic()
        deadline = began + deadline_seconds
        self.changes = []
        replicas = self._declared(version, alias, actor)
        started = self._start(replicas, say)
        outdated: list[DesiredReplica] = []
        for replica in replicas:
            hosted = self._replica(replica).await_loaded(version, deadline)
            if hosted.digest != version.digest or hosted.state != "ready":
                outdated.append(replica)
            else:
                step: Literal["start", "none"] = "start" if replica in started else "none"
                self._note(replica, step, began)
        phases: Mapping[str, float] = {}
        reason = f"{len(started)} of {len(replicas)} replicas did not run" if started else ""
        step_done: Literal["start", "swap", "rolling", "none"] = "start" if started else "none"
        if outdated:
            step_done, reason, phases = self._change(version, alias, outdated, deadline, wish, say)
        if self.fleet.proxy is not None:
            left = max(1.0, deadline - time.monotonic())
            self.fleet.reconcile(deadline_seconds=left, say=say).require_settled()
        return Deployment(step_done, phases, time.monotonic() - began, reason)

    def _declared(self, version: Version, alias: str, actor: str) -> list[DesiredReplica]:
        self.fleet.declare(
            version.model, alias, actor=actor, reason=f"{version.name} is to be served"
        )
        declared = self.fleet.desired()
        mine = [r for r in declared if r.model == version.model and r.state == "running"]
        if not mine:
            raise NotFoundError(
                f"no replica should run for {version.model}",
                where="declared: "
                + (", ".join(f"{r.service} ({r.model}, {r.state})" for r in declared) or "none"),
                fix="declare one, or its state anew: ironworks fleet set",
            )
        return mine

    def _start(
        self, replicas: Sequence[DesiredReplica], say: Callable[[str], None]
    ) -> list[DesiredReplica]:
        """Start those that have no process, all at once, and the proxy first."""
        if self.fleet.proxy is not None and self.fleet.proxy.ensure(self.fleet.desired()):
            say(f"started HAProxy on port {self.fleet.layout.port}")
        started = []
        for replica in replicas:
            if not self.fleet.supervisor.status(replica.service).running:
                say(f"{replica.service} does not run: starting it")
                self.fleet.supervisor.start(self.fleet.spec_of(replica))
                started.append(replica)
        return started

    def _change(
        self,
        version: Version,
        alias: str,
        outdated: Sequence[DesiredReplica],
        deadline: float,
        wish: Wish,
        say: Callable[[str], None],
    ) -> tuple[Literal["swap", "rolling"], str, Mapping[str, float]]:
        proxy = self.fleet.proxy
        servers = {} if proxy is None else proxy.client.servers()
        weights = sum(
            entry.size for entry in version.manifest.files if entry.path.endswith(".safetensors")
        )
        plan = plan_rollout(
            weights,
            [self._replica(replica).room(version.model) for replica in outdated],
            sum(server.in_rotation for server in servers.values()),
            wish=wish,
        )
        say(f"{plan.strategy} of {', '.join(plan.order)}: {plan.reason}")
        phases: Mapping[str, float] = {}
        for replica in outdated:
            began = time.monotonic()
            if plan.strategy == "rolling" and proxy is not None:
                self._replace(version, replica, proxy, deadline, say)
            else:
                left = max(1.0, deadline - time.monotonic())
                phases = (
                    self._replica(replica)
                    .serve(version, alias=alias, deadline_seconds=left, say=say)
                    .phases
                )
            self._note(replica, plan.strategy, began)
        return plan.strategy, plan.reason, phases

    def _replace(
        self,
        version: Version,
        replica: DesiredReplica,
        proxy: HAProxyProcess,
        deadline: float,
        say: Callable[[str], None],
    ) -> None:
        """Drain one replica while its peers serve, start it anew, and take it back."""
        service = replica.service
        client = proxy.client
        self._await(
            lambda: any(s.in_rotation for s in client.servers().values() if s.service != service),
            deadline,
            f"no other replica is in rotation, so {service} can't be drained",
        )
        say(f"{service}: draining")
        client.drain(service)
        patience = min(deadline, time.monotonic() + DRAIN_SECONDS)
        self._await(
            lambda: client.sessions(service) == 0, patience, f"requests on {service} did not end"
        )
        say(f"{service}: starting anew")
        self.fleet.supervisor.stop(service)
        self.fleet.supervisor.start(self.fleet.spec_of(replica))
        self._replica(replica).await_loaded(version, deadline)
        with ReplicaClient(f"http://{replica.host}:{replica.port}") as http:
            self._await(http.readyz, deadline, f"{service} was not ready in time")
        client.ready(service, weight=replica.weight)
        self._await(
            lambda: client.servers()[service].in_rotation,
            deadline,
            f"the proxy did not take {service} back",
        )
        say(f"{service}: in rotation with {version.name}")

    def _replica(self, replica: DesiredReplica) -> ManagedReplica:
        return ManagedReplica(
            ReplicaAddress(replica.service, replica.port, replica.host),
            self.fleet.paths,
            self.fleet.supervisor,
            self.fleet.layout.settings,
        )

    def _note(
        self,
        replica: DesiredReplica,
        step: Literal["start", "swap", "rolling", "none"],
        began: float,
    ) -> None:
        self.changes.append(ReplicaChange(replica.service, step, time.monotonic() - began))

    @staticmethod
    def _await(holds: Callable[[], bool], deadline: float, otherwise: str) -> None:
        while not holds():
            if time.monotonic() > deadline:
                raise ProcessError(
                    otherwise, where="fleet", fix="see `make status`, then try again"
                )
            time.sleep(_POLL_SECONDS)
