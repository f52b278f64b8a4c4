"""Changing the number of replicas, and draining a host: declare first, then make it so."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from lifecycle.fleet.managed import ManagedFleet
from lifecycle.fleet.scaling import declare, declare_state, plan
from registry.fleet import DesiredState
from registry.store import Registry

SCALE_ACTOR, DRAIN_ACTOR = "scale_replicas", "drain_host"
DECIDED = "scale.decided"

GLANCE_SECONDS = 5.0
"""How long a scaling works before it looks whether a recovery waits for its place."""


@dataclass(frozen=True)
class ScaleRequest:
    """What a run was asked for; see ``ScaleConfig``."""

    target: int
    reason: str
    inputs: Mapping[str, Any]
    deadline_seconds: float
    drain_seconds: float
    dry_run: bool


def scale(
    fleet: ManagedFleet,
    request: ScaleRequest,
    *,
    devices: int | None,
    give_way: Callable[[], bool],
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Declare ``target`` replicas and make it so; what was done, for people.

    Declared first, so that whoever comes after a crash in the middle goes on from there.

    Args:
        fleet: all replicas.
        request: how many, and why.
        devices: GPUs of this host.
        give_way: asked between two steps: whether to leave the rest to the next reconcile.
        say: is told each step.

    Raises:
        InputError: there is no proxy, or no port left.
        ProcessError: the fleet is not as declared within the deadline.
    """
    with Registry.open(fleet.paths.registry) as registry:
        before = registry.fleet.desired()
        add, remove = plan(before, fleet.layout, request.target, devices)
        changes = [f"+{one.service}" for one in add] + [f"-{name}" for name in remove]
        if not request.dry_run and changes:
            registry.record(
                DECIDED,
                "fleet",
                {
                    "from": sum(r.state == "running" for r in before),
                    "to": request.target,
                    "reason": request.reason[:500],
                    "inputs": {name: str(value) for name, value in request.inputs.items()},
                },
                actor=SCALE_ACTOR,
            )
            declare(registry, add, remove, actor=SCALE_ACTOR, reason=request.reason[:500])
    told = {"changes": ", ".join(changes) or "none", "reason": request.reason}
    if request.dry_run:
        return {**told, "pending": "dry run: nothing was done"}
    # Of what should run only the new ones are dealt with: an old one that was stopped on
    # purpose stays so.
    with Registry.open(fleet.paths.registry) as registry:
        desired = registry.fleet.desired()
    only = {r.service for r in desired if r.state != "running"} | {one.service for one in add}
    pending = _settle(fleet, only | set(remove), request, give_way, say)
    return {**told, "pending": pending}


def _settle(
    fleet: ManagedFleet,
    only: set[str],
    request: ScaleRequest,
    give_way: Callable[[], bool],
    say: Callable[[str], None],
) -> str:
    began = time.monotonic()
    only |= set(fleet.observe().strangers)
    while True:
        elapsed = time.monotonic() - began
        patience = max(0.0, request.drain_seconds - elapsed)
        done = fleet.reconcile(
            deadline_seconds=GLANCE_SECONDS, drain_seconds=patience, only=only, say=say
        )
        if done.settled:
            return ""
        pending = "; ".join(map(str, done.pending))
        if give_way():
            say("a recovery waits: the rest is left to the next look")
            return pending
        if done.failures or elapsed > request.deadline_seconds:
            done.require_settled()


def drain(
    fleet: ManagedFleet,
    hosts: Collection[str],
    *,
    undo: bool,
    reason: str,
    seconds: float,
    dry_run: bool,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Take every replica of a host out of rotation, or back; what was done, for people.

    Args:
        fleet: all replicas.
        hosts: names and addresses of the host.
        undo: put those that are drained back.
        reason: for the audit log.
        seconds: how long requests may take to end.
        dry_run: only tell.
        say: is told each step.
    """
    old: DesiredState = "drained" if undo else "running"
    new: DesiredState = "running" if undo else "drained"
    with Registry.open(fleet.paths.registry) as registry:
        mine = [r for r in registry.fleet.desired() if r.host in hosts]
        services = [r.service for r in mine if r.state in (old, new)]
        if not dry_run:
            declare_state(registry, services, new, actor=DRAIN_ACTOR, reason=reason)
            registry.record(
                "host.undrained" if undo else "host.drained",
                min(hosts),
                {"services": list(services), "reason": reason},
                actor=DRAIN_ACTOR,
            )
    if dry_run:
        return {"replicas": ", ".join(services), "pending": "", "dry_run": True}
    done = fleet.reconcile(deadline_seconds=seconds, drain_seconds=seconds, only=services, say=say)
    pending = [str(action) for action in done.pending if action.service in services]
    return {"replicas": ", ".join(services), "pending": "; ".join(pending)}
