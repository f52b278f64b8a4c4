"""What must be done so that the fleet becomes what it should be: a pure decision.

The plan follows from what is declared and what is seen, and from nothing else: whoever asks
again, after a crash between any two steps too, gets the rest of the same way. A step is only
planned when what it needs has been *seen*: no process is stopped before the proxy was seen
to have taken it out of rotation and its requests were seen to have ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from lifecycle.fleet.observe import FleetObservation, ReplicaObservation
from lifecycle.fleet.proxy.base import ProxyServer
from registry.fleet import DesiredReplica

Step = Literal[
    "start_proxy",
    "introduce",
    "start",
    "enter",
    "leave",
    "drain",
    "stop",
    "forget",
    "await_ready",
    "await_idle",
]

PROXY = "proxy"
"""Stands for a service in an action on the proxy itself."""


@dataclass(frozen=True)
class Action:
    """One step on one replica.

    Attributes:
        step: what to do. ``introduce``, ``enter``, ``leave`` and ``forget`` are told to the
            proxy; ``start``, ``drain`` and ``stop`` to the process manager; an ``await_…``
            only says what the next step waits for.
        service: which replica.
        reason: why, for people.
    """

    step: Step
    service: str
    reason: str

    @property
    def waits(self) -> bool:
        """Whether there is nothing to do but to look again."""
        return self.step in ("await_ready", "await_idle")

    def __str__(self) -> str:
        return f"{self.step} {self.service}: {self.reason}"


def plan(
    desired: Collection[DesiredReplica], seen: FleetObservation, *, patient: bool = True
) -> list[Action]:
    """Return what to do now, in order; nothing when the fleet is as it should be.

    Args:
        desired: what is declared.
        seen: the fleet as it is; must cover ``desired``.
        patient: wait for the requests of a replica that has to go. Without patience its
            own drain at SIGTERM is all that they get.
    """
    actions: list[Action] = []
    proxied = seen.proxied and not seen.proxy_error
    if seen.proxied and not proxied:
        actions.append(Action("start_proxy", PROXY, seen.proxy_error))
        if patient:
            # Who works for whom can't be seen: nothing is ended until it can.
            starts = [r for r in desired if r.state == "running"]
            return [*actions, *_missing(starts, seen)]
    for replica in desired:
        one = seen.replicas[replica.service]
        if replica.state == "running":
            actions += _running(replica, one, proxied, patient)
        elif replica.state == "drained":
            actions += _drained(one, proxied, alone=not seen.proxied)
        else:
            actions += _gone(one, "it should be stopped", proxied, patient)
    for stranger in seen.strangers.values():
        actions += _gone(stranger, "it is not declared", proxied, patient)
    return actions


def _missing(desired: Collection[DesiredReplica], seen: FleetObservation) -> Iterator[Action]:
    for replica in desired:
        if seen.replicas[replica.service].process is False:
            yield Action("start", replica.service, "it has no process")


def _running(
    replica: DesiredReplica, one: ReplicaObservation, proxied: bool, patient: bool
) -> Iterator[Action]:
    service = replica.service
    known = one.proxy
    if proxied:
        if known is None:
            yield Action("introduce", service, "the proxy does not know it")
        elif (known.host, known.port) != (replica.host, replica.port):
            yield from _out(known, f"the proxy has it at {known.host}:{known.port}", patient=True)
            return
    if one.process is None:
        yield Action("await_ready", service, "its process manager does not answer")
    elif not one.process:
        yield Action("start", service, "it has no process")
        yield Action("await_ready", service, "it is starting")
    elif one.probe.draining:
        # A replica that was told to drain never takes work again; what it has ends first.
        if known is not None and known.rotation == "ready":
            yield Action("leave", service, "it drains and should serve")
            yield Action("await_idle", service, "its requests end")
        elif patient and (busy := max(known.sessions if known else 0, one.load.in_system)):
            yield Action("await_idle", service, f"{busy} requests end")
        else:
            yield Action("stop", service, "it drains and should serve")
            yield Action("start", service, "it drained and should serve")
    elif not one.ready:
        yield Action("await_ready", service, one.probe.reason or "it is not ready")
    elif known is not None and (known.rotation != "ready" or known.weight != replica.weight):
        told = f"{known.rotation}, weight {known.weight}"
        yield Action("enter", service, f"it is ready and the proxy has it as {told}")
    elif known is not None and not known.up:
        yield Action("await_ready", service, f"the proxy's health check: {known.reason}")


def _drained(one: ReplicaObservation, proxied: bool, *, alone: bool) -> Iterator[Action]:
    if proxied and one.proxy is None:
        yield Action("introduce", one.service, "the proxy does not know it")
    elif one.proxy is not None and one.proxy.rotation == "ready":
        yield Action("leave", one.service, "it should be drained")
        yield Action("await_idle", one.service, "its requests end")
    elif one.proxy is not None and one.proxy.sessions:
        yield Action("await_idle", one.service, f"{one.proxy.sessions} requests end")
    elif alone and one.process and one.live and not one.probe.draining:
        yield Action("drain", one.service, "it should be drained, and there is no proxy")


def _gone(one: ReplicaObservation, why: str, proxied: bool, patient: bool) -> Iterator[Action]:
    if one.proxy is None or not proxied:
        if one.process:
            yield Action("stop", one.service, why)
        return
    # Without a process there is nothing left to wait for.
    for action in _out(one.proxy, why, patient=patient and bool(one.process)):
        if action.step == "forget" and one.process:
            yield Action("stop", one.service, why)
        yield action


def _out(known: ProxyServer, why: str, *, patient: bool) -> Iterator[Action]:
    """Take a server out of the proxy, without failing a request."""
    if known.rotation == "ready":
        yield Action("leave", known.service, why)
        # Not forgotten in the same round: a request may have come since we looked.
        yield Action("await_idle", known.service, "its requests end")
    elif known.sessions and patient:
        yield Action("await_idle", known.service, f"{known.sessions} requests end")
    else:
        yield Action("forget", known.service, why)
