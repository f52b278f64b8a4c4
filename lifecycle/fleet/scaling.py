"""From a number of replicas to what is declared; and how far scaling may go here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lifecycle.fleet import reconcile
from lifecycle.fleet.autoscale import FleetLoad
from lifecycle.fleet.layout import MAX_REPLICAS, FleetLayout
from lifecycle.fleet.observe import FleetObservation
from lifecycle.fleet.scale_rule import ScaleRule
from lifecycle.fleet.scrape import Buckets, quantile
from lifecycle.host.gpus import GpuReading
from registry.errors import InputError
from registry.fleet import DesiredReplica, DesiredState
from registry.store import Registry

MIN_VARIABLE = "IRONWORKS_SCALE_MIN"
MAX_VARIABLE = "IRONWORKS_SCALE_MAX"
TARGET_VARIABLE = "IRONWORKS_SCALE_TARGET"
DRY_RUN_VARIABLE = "IRONWORKS_DRY_RUN"


@dataclass(frozen=True)
class ScaleSettings:
    """Whether replicas may be added and removed without asking, and the bounds.

    Attributes:
        acts: False: decide and show, change nothing.
        why_not: why it does not act, for people.
        rule: bounds and constants.
    """

    acts: bool
    why_not: str
    rule: ScaleRule

    @classmethod
    def from_environment(cls, layout: FleetLayout) -> ScaleSettings:
        """Read the variables; without a maximum nothing is ever changed.

        Raises:
            InputError: one of them is not acceptable.
        """
        least = _number(MIN_VARIABLE, 1)
        most = _number(MAX_VARIABLE, 0)
        rule = ScaleRule(
            target_per_replica=float(_number(TARGET_VARIABLE, 12)),
            min_replicas=least,
            max_replicas=most or MAX_REPLICAS,
        )
        if most and most < least:
            raise InputError(
                f"the maximum {most} is less than the minimum {least}", where=MAX_VARIABLE
            )
        why_not = ""
        if not layout.proxied:
            why_not = "a single replica has no proxy that another could stand behind"
        elif not most:
            why_not = f"scaling is off: set {MAX_VARIABLE}"
        elif dry_run():
            why_not = f"dry run: {DRY_RUN_VARIABLE} is set"
        return cls(not why_not, why_not, rule)


def dry_run() -> bool:
    """Whether sensors only tell what they would do."""
    return os.environ.get(DRY_RUN_VARIABLE, "") not in ("", "0", "false")


def load_of(
    desired: Sequence[DesiredReplica], seen: FleetObservation, gpus: GpuReading, before: Buckets
) -> FleetLoad:
    """The input of the scale decision.

    Args:
        desired: what is declared.
        seen: the fleet now.
        gpus: of this host.
        before: `FleetObservation.ttft` at the last look, so that old requests don't count.
    """
    running = [r for r in desired if r.state == "running"]
    silent = [
        r.service
        for r in running
        if (one := seen.replicas.get(r.service)) is not None and one.live and one.probe.load is None
    ]
    return FleetLoad(
        replicas=len(running),
        ready=sum(r.service in seen.replicas and seen.replicas[r.service].ready for r in running),
        running=seen.running,
        waiting=seen.waiting,
        kv_usage=seen.kv_usage,
        ttft_p95_seconds=quantile(seen.ttft, 0.95, since=before),
        gpu_util=gpus.utilisation,
        gpu_memory=gpus.memory,
        healthy_devices=gpus.healthy,
        unknown=gpus.unknown or (f"no metrics of {', '.join(silent)}" if silent else ""),
    )


def leftovers(desired: Sequence[DesiredReplica], seen: FleetObservation) -> list[str]:
    """What a scaling that gave way to a recovery has left: replicas that should be gone."""
    wanted = {r.service for r in desired if r.state == "running"} | {reconcile.PROXY}
    return [str(step) for step in reconcile.plan(desired, seen) if step.service not in wanted]


def plan(
    desired: Sequence[DesiredReplica], layout: FleetLayout, target: int, devices: int | None
) -> tuple[list[DesiredReplica], list[str]]:
    """What to declare so that ``target`` replicas should run: those to add, those to remove.

    The target is a total, so that asking twice changes nothing more. The last port goes
    first, as it came last.

    Args:
        desired: what is declared.
        layout: where another replica can be.
        target: how many should run.
        devices: GPUs of this host; each new replica gets the first that has none. None:
            replicas choose by themselves.

    Raises:
        InputError: there is no proxy, or no port left.
    """
    running = [r for r in desired if r.state == "running"]
    added: list[DesiredReplica] = []
    while len(running) + len(added) < target:
        known = [*desired, *added]
        one = layout.another(known)
        if devices:
            taken = [r.device for r in known]
            free = [f"cuda:{n}" for n in range(devices) if f"cuda:{n}" not in taken]
            # "auto" means the first GPU.
            free = [d for d in free if d != "cuda:0" or "auto" not in taken]
            one = replace(one, device=free[0] if free else "auto")
        added.append(one)
    surplus = max(0, len(running) - target)
    last_first = sorted(running, key=lambda r: r.port, reverse=True)
    return added, [r.service for r in last_first[:surplus]]


def declare(
    registry: Registry,
    add: Sequence[DesiredReplica],
    remove: Sequence[str],
    *,
    actor: str,
    reason: str,
) -> None:
    """Write a plan into the desired state; each change is an event."""
    for one in add:
        registry.fleet.set(one, actor=actor, reason=reason)
    for service in remove:
        registry.fleet.remove(service, actor=actor, reason=reason)


def declare_state(
    registry: Registry, services: Sequence[str], state: DesiredState, *, actor: str, reason: str
) -> list[str]:
    """Give replicas another desired state; those that changed."""
    declared: Mapping[str, DesiredReplica] = {r.service: r for r in registry.fleet.desired()}
    return [
        service
        for service in services
        if service in declared
        and registry.fleet.set(replace(declared[service], state=state), actor=actor, reason=reason)
    ]


def _number(variable: str, default: int) -> int:
    text = os.environ.get(variable) or str(default)
    if not text.isdecimal() or int(text) > MAX_REPLICAS:
        raise InputError(
            f"{text[:20]!r} is not a number up to {MAX_REPLICAS}", where=variable, fix="such as 4"
        )
    return int(text)
