"""One recovery, step by step: confirm what is wrong, end what hangs, prove that it serves."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from lifecycle.fleet import health
from lifecycle.fleet.faults import Fault
from lifecycle.fleet.managed import ManagedFleet
from lifecycle.fleet.observe import ReplicaObservation
from lifecycle.fleet.processes import ProcessError
from lifecycle.fleet.reconcile import PROXY
from lifecycle.fleet.recovery import Sight, Watch, classify
from lifecycle.fleet.repair import repair
from registry.canonical import Json
from registry.errors import IronworksError, NotFoundError
from registry.store import Registry

ACTOR = "recover_replica"
STARTED = "recovery.replica_started"
RECOVERED = "recovery.replica_recovered"
FAILED = "recovery.replica_failed"

_LOOK_SECONDS = 0.25
_SECOND_LOOK_SECONDS = 2.0


@dataclass(frozen=True)
class Request:
    """What a run was asked for; see ``RecoverConfig``."""

    service: str
    fault: str
    fault_at: float
    ready_seconds: float
    run_id: str


@dataclass(frozen=True)
class Case:
    """How far a recovery has got; plain values, handed from op to op.

    Attributes:
        service: which replica.
        fault: what was confirmed, "" for nothing.
        note: how it was seen.
        fault_at: Unix seconds.
        ready_seconds: how long it may take.
        run_id: of the run that is at it.
        did: what was ended.
        engines: pids of engines that must not be the ones that serve at the end.
        only_tell: dry run.
    """

    service: str
    fault: str
    note: str
    fault_at: float
    ready_seconds: float
    run_id: str
    did: str = ""
    engines: tuple[int, ...] = ()
    only_tell: bool = False

    def dry(self) -> Case:
        """The same, to be told only."""
        return replace(self, only_tell=True)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Case:
        """What `as_json` gave."""
        return cls(**{**value, "engines": tuple(value["engines"])})


def confirm(fleet: ManagedFleet, request: Request) -> Case:
    """Look again; a replica that does not answer is looked at twice.

    Raises:
        NotFoundError: no such replica is declared.
    """
    now = time.time()
    watch = Watch(
        answered=True,
        fault=request.fault,
        pid_since=request.fault_at if request.fault == Fault.NOT_READY else now,
    )
    sight = _sight(fleet, request.service)
    fault, note = classify(sight, watch, now)
    if fault is Fault.HUNG:
        time.sleep(_SECOND_LOOK_SECONDS)
        sight = _sight(fleet, request.service)
        fault, note = classify(sight, watch, now)
    return Case(
        request.service,
        "" if fault is None else fault.value,
        note,
        request.fault_at or now,
        request.ready_seconds,
        request.run_id,
        engines=_engines(sight.seen) if fault is Fault.STUCK else (),
    )


def repair_case(fleet: ManagedFleet, case: Case) -> Case:
    """End what hangs; looks again first, since the op may be repeated."""
    if not case.fault or case.only_tell:
        did = "dry run: nothing was done" if case.fault else "nothing to do"
        return replace(case, did=did)
    _record(fleet, STARTED, case, {"seen": case.note})
    sight = _sight(fleet, case.service)
    return replace(case, did=repair(Fault(case.fault), sight.seen, fleet.supervisor))


def prove(fleet: ManagedFleet, case: Case, *, say: Callable[[str], None]) -> dict[str, Any]:
    """Reconcile the replica and wait until it takes work in rotation; what that took.

    Raises:
        ProcessError: it does not serve in time, or ended while it started.
    """
    if not case.fault or case.only_tell:
        return {"verdict": case.did, "seen": case.note}
    deadline = time.monotonic() + case.ready_seconds
    try:
        done = fleet.reconcile(deadline_seconds=case.ready_seconds, only=[case.service], say=say)
        for service in (case.service, PROXY):
            if service in done.failures:
                raise done.failures[service]
        _await_serving(fleet, case, deadline)
    except IronworksError as error:
        _record(fleet, FAILED, case, {"did": case.did, "reason": str(error)[:500]})
        raise
    seconds = time.time() - case.fault_at
    steps = [str(each.action) for each in done.done]
    _record(
        fleet,
        RECOVERED,
        case,
        {"did": case.did, "steps": list(steps), "serving_again_ms": round(seconds * 1000)},
    )
    return {
        "verdict": "serves again",
        "did": case.did,
        "steps": "; ".join(steps) or "none",
        "serving_again_seconds": round(seconds, 3),
    }


def _await_serving(fleet: ManagedFleet, case: Case, deadline: float) -> None:
    while True:
        sight = _sight(fleet, case.service)
        fault, note = classify(sight, Watch(answered=True), time.time())
        if fault is None and _serves(sight.seen, case):
            return
        if time.monotonic() > deadline:
            raise ProcessError(
                f"{case.service} does not serve after {case.ready_seconds:.0f} s: {note}",
                where="; ".join(fleet.supervisor.logs(case.service, lines=3))[:600],
                fix="read its log in var/log",
            )
        time.sleep(_LOOK_SECONDS)


def _serves(seen: ReplicaObservation | None, case: Case) -> bool:
    if seen is None:
        return True  # the proxy answers
    fresh = not set(case.engines) & set(_engines(seen))
    return seen.healthy and fresh


def _engines(seen: ReplicaObservation | None) -> tuple[int, ...]:
    models = {} if seen is None else seen.models
    return tuple(model.engine_pid for model in models.values() if model.engine_pid)


def _sight(fleet: ManagedFleet, service: str) -> Sight:
    _, sights = health.look(fleet)
    for sight in sights:
        if sight.service == service:
            return sight
    raise NotFoundError(
        "no such replica is declared",
        where=service,
        fix=f"declared: {', '.join(sight.service for sight in sights) or 'none'}",
    )


def _record(fleet: ManagedFleet, kind: str, case: Case, body: dict[str, Json]) -> None:
    """Write an event; a registry that can't be written must not keep a replica down."""
    try:
        with Registry.open(fleet.paths.registry) as registry:
            registry.record(
                kind, case.service, {"fault": case.fault, "run": case.run_id, **body}, actor=ACTOR
            )
    except IronworksError:
        return
