"""The fleet of one state folder: looked at, and made what it should be."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from lifecycle.fleet.layout import FleetLayout
from lifecycle.fleet.observe import DEADLINE_SECONDS, FleetObservation, observe
from lifecycle.fleet.processes import ProcessError
from lifecycle.fleet.proxy.process import HAProxyProcess
from lifecycle.fleet.reconcile import PROXY, Action, plan
from lifecycle.fleet.supervisors.base import ReplicaSpec, ReplicaSupervisor
from registry.errors import IronworksError
from registry.fleet import DesiredReplica
from registry.paths import StatePaths
from registry.store import Registry

LOOK_SECONDS = 0.25
"""Pause between two looks while there is nothing to do but wait."""

DRAIN_SECONDS = 900.0
"""How long the requests of a replica that has to go may take: as in a swap."""


@dataclass(frozen=True)
class Done:
    """One action that was carried out."""

    action: Action
    seconds: float


@dataclass(frozen=True)
class Reconciliation:
    """What a reconcile did.

    Attributes:
        done: the actions, in order.
        pending: what was still to be done at the deadline; empty when all is as it should be.
        failures: why a replica could not be brought where it should be, by service.
        seen: the fleet at the end.
        seconds: in all.
    """

    done: tuple[Done, ...]
    pending: tuple[Action, ...]
    failures: dict[str, IronworksError]
    seen: FleetObservation
    seconds: float

    @property
    def settled(self) -> bool:
        """Whether the fleet is what it should be."""
        return not self.pending and not self.failures

    def require_settled(self) -> Reconciliation:
        """Return itself.

        Raises:
            IronworksError: the first failure.
            ProcessError: something was still pending at the deadline.
        """
        for error in self.failures.values():
            raise error
        if self.pending:
            raise ProcessError(
                f"the fleet is not what it should be after {self.seconds:.0f} s: "
                + "; ".join(map(str, self.pending))[:600],
                where="fleet",
                fix="read the logs of these replicas in var/log, then reconcile again",
            )
        return self


def _silent(_: str) -> None:
    """Tell nobody."""


@dataclass
class _Round:
    """What one call of `reconcile` has done so far."""

    done: list[Done] = field(default_factory=list)
    failures: dict[str, IronworksError] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)


class ManagedFleet:
    """All replicas of a state folder and the proxy in front of them.

    Args:
        paths: the state folder; its registry holds the desired state.
        layout: where clients come in, and whether through a proxy.
        supervisor: starts and ends the replicas.
    """

    def __init__(
        self, paths: StatePaths, layout: FleetLayout, supervisor: ReplicaSupervisor
    ) -> None:
        self.paths = paths
        self.layout = layout
        self.supervisor = supervisor
        proxy = layout.proxy
        self.proxy = None if proxy is None else HAProxyProcess(paths, proxy)

    def desired(self) -> list[DesiredReplica]:
        """What is declared."""
        with Registry.open(self.paths.registry) as registry:
            return registry.fleet.desired()

    def declare(self, model: str, alias: str, *, actor: str, reason: str) -> bool:
        """Declare the replicas to begin with, unless some of this layout are declared.

        Those of another layout (a single replica on the port that is now the proxy's)
        can't stand beside these and are forgotten.

        Returns:
            Whether anything was changed.
        """
        with Registry.open(self.paths.registry) as registry:
            declared = registry.fleet.desired()
            strays = [replica for replica in declared if not self.layout.holds(replica)]
            for stray in strays:
                registry.fleet.remove(stray.service, actor=actor, reason=reason)
            if len(strays) < len(declared):
                return bool(strays)
            for replica in self.layout.initial(model, alias):
                registry.fleet.set(replica, actor=actor, reason=reason)
            return True

    def observe(self, deadline_seconds: float = DEADLINE_SECONDS) -> FleetObservation:
        """Look at every declared replica and at the proxy, all at once."""
        return self._look(self.desired(), deadline_seconds)

    def pending(self) -> list[Action]:
        """What a reconcile would do now; starts and changes nothing."""
        desired = self.desired()
        return plan(desired, self._look(desired))

    def reconcile(
        self,
        *,
        deadline_seconds: float = 900.0,
        drain_seconds: float = DRAIN_SECONDS,
        only: Collection[str] | None = None,
        say: Callable[[str], None] = _silent,
    ) -> Reconciliation:
        """Make the fleet what it should be; safe at any time, twice, and after a crash.

        The desired state is read anew at each look. A replica is started once per call:
        one that ends again is a failure, not a loop.

        Args:
            deadline_seconds: for everything, loading included.
            drain_seconds: how long requests of a replica that has to go may take.
            only: services to deal with, beside the proxy; None: all. What is wrong with
                another must not hold up the recovery of this one.
            say: is told each step.
        """
        began = time.monotonic()
        work = _Round()
        told: set[str] = set()
        configured: list[DesiredReplica] | None = None
        while True:
            desired = self.desired()
            if self.proxy is not None and desired != configured:
                self._attempt(work, PROXY, partial(self.proxy.configure, desired))
                configured = desired
            seen = self._look(desired)
            elapsed = time.monotonic() - began
            actions = [
                action
                for action in plan(desired, seen, patient=elapsed < drain_seconds)
                if action.service not in work.failures
                and (only is None or action.service in (*only, PROXY))
            ]
            if not actions or elapsed > deadline_seconds:
                return Reconciliation(
                    tuple(work.done), tuple(actions), work.failures, seen, elapsed
                )
            for action in actions:
                if str(action) not in told:
                    told.add(str(action))
                    say(str(action))
                if not action.waits:
                    self._apply(work, action, desired)
            if all(action.waits for action in actions):
                time.sleep(LOOK_SECONDS)

    def spec_of(self, replica: DesiredReplica) -> ReplicaSpec:
        """How the replica is to be started."""
        device = {} if replica.device == "auto" else {"IRONWORKS_DEVICE": replica.device}
        return ReplicaSpec(
            service=replica.service,
            port=replica.port,
            host=replica.host,
            model=replica.model,
            alias=replica.alias,
            env={**self.layout.settings, **device},
        )

    def _look(
        self, desired: list[DesiredReplica], deadline_seconds: float = DEADLINE_SECONDS
    ) -> FleetObservation:
        client = None if self.proxy is None else self.proxy.client
        return observe(self.paths, desired, self.supervisor, client, deadline_seconds)

    def _apply(self, work: _Round, action: Action, desired: list[DesiredReplica]) -> None:
        if action.service in work.failures:
            return
        began = time.monotonic()
        if self._attempt(work, action.service, partial(self._carry_out, work, action, desired)):
            work.done.append(Done(action, time.monotonic() - began))

    def _carry_out(self, work: _Round, action: Action, desired: list[DesiredReplica]) -> None:
        service = action.service
        declared = {replica.service: replica for replica in desired}
        match action.step:
            case "start":
                self._start(work, declared[service])
            case "stop":
                self.supervisor.stop(service)
            case "drain":
                self.supervisor.drain(service)
            case _:
                self._tell_proxy(action, declared.get(service), desired)

    def _tell_proxy(
        self, action: Action, replica: DesiredReplica | None, desired: list[DesiredReplica]
    ) -> None:
        assert self.proxy is not None, "the plan names a proxy only where there is one"
        client = self.proxy.client
        match action.step:
            case "start_proxy":
                self.proxy.ensure(desired)
            case "leave":
                client.drain(action.service)
            case "forget":
                client.remove(action.service)
            case "introduce" if replica is not None:
                client.add(action.service, replica.host, replica.port, replica.weight)
            case "enter" if replica is not None:
                client.ready(action.service, weight=replica.weight)

    def _start(self, work: _Round, replica: DesiredReplica) -> None:
        if replica.service in work.started:
            last = " | ".join(self.supervisor.logs(replica.service, lines=3))
            raise ProcessError(
                f"{replica.service} was started and has ended",
                where=last[:600],
                fix="read its log in var/log",
            )
        work.started.add(replica.service)
        self.supervisor.start(self.spec_of(replica))

    @staticmethod
    def _attempt(work: _Round, service: str, call: Callable[[], object]) -> bool:
        try:
            call()
        except IronworksError as error:
            work.failures[service] = error
            return False
        return True
