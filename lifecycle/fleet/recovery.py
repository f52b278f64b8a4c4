"""Which replicas must be recovered now: a pure decision over what was seen, tick by tick.

A replica that was stopped on purpose (SIGTERM, ``make down``) or that drains is no fault, and
neither is one that is not meant to run. Attempts are paused and counted: when they are used
up, a person is told once and nothing is tried any more until the replica is healthy again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lifecycle.fleet.faults import OF_A_RELOAD, RULE, Fault, RecoveryRule
from lifecycle.fleet.observe import ReplicaObservation
from registry.fleet import DesiredState


@dataclass(frozen=True)
class Sight:
    """One replica at one tick.

    Attributes:
        service: its name, or ``proxy``.
        desired: what it should be.
        seen: what it is; None for the proxy.
        ran_before: whether it has ever loaded anything.
        ended_on_purpose: whether its last load ended in an orderly unload.
        proxy_error: why the proxy does not answer, for the sight of the proxy alone.
    """

    service: str
    desired: DesiredState = "running"
    seen: ReplicaObservation | None = None
    ran_before: bool = False
    ended_on_purpose: bool = False
    proxy_error: str = ""


@dataclass(frozen=True)
class Watch:
    """What is remembered of a replica between two ticks; times are Unix seconds.

    Attributes:
        pid: of the process seen last, 0 for none.
        pid_since: when that pid was first seen.
        answered: whether that process has ever answered.
        drained: whether it was seen draining: its end is then no surprise.
        fault: that stands, "" for none.
        since: when that fault was first seen.
        epoch: recoveries asked for in this incident, 0 before the first.
        asked: when they were asked for, over all incidents of the window.
        given_up: attempts are used up.
    """

    pid: int = 0
    pid_since: float = 0.0
    answered: bool = False
    drained: bool = False
    fault: str = ""
    since: float = 0.0
    epoch: int = 0
    asked: tuple[float, ...] = ()
    given_up: bool = False


@dataclass(frozen=True)
class Recovery:
    """One recovery to ask for."""

    service: str
    fault: Fault
    since: float
    run_key: str
    reason: str


@dataclass(frozen=True)
class RecoveryDecision:
    """What one tick led to.

    Attributes:
        recoveries: to ask for now.
        given_up: replicas whose attempts have been used up at this tick, with the reason.
        notes: by service, how it stands and why nothing is done about it.
        watches: for the next tick.
    """

    recoveries: tuple[Recovery, ...]
    given_up: Mapping[str, str]
    notes: Mapping[str, str]
    watches: Mapping[str, Watch]


def decide(
    sights: Collection[Sight],
    watches: Mapping[str, Watch],
    busy: Collection[str],
    now: float,
    rule: RecoveryRule = RULE,
    *,
    reloading: bool = False,
) -> RecoveryDecision:
    """Choose the recoveries to ask for.

    Args:
        sights: every declared replica, and the proxy where there is one.
        watches: of the last tick.
        busy: services for which a recovery, a scaling or a drain is queued or runs.
        now: Unix time in seconds.
        rule: patience and limits.
        reloading: a reload is queued or runs. It does not hold up the recovery of what is
            broken, but it takes replicas out of rotation and lets them load, on purpose.
    """
    recoveries: list[Recovery] = []
    given_up: dict[str, str] = {}
    notes: dict[str, str] = {}
    following: dict[str, Watch] = {}
    for sight in sights:
        watch = _seen(watches.get(sight.service, Watch()), sight, now, rule)
        fault, note = classify(sight, watch, now, rule)
        watch = _standing(watch, fault, sight, now)
        if fault is not None:
            wait = _reason_to_wait(sight, fault, watch, busy, now, rule)
            if not wait and reloading and fault in OF_A_RELOAD:
                wait = "a reload is under way"
            used_up = watch.epoch >= rule.max_attempts or len(watch.asked) >= rule.max_in_window
            if not wait and used_up:
                wait = given_up[sight.service] = (
                    f"{note}; given up after {watch.epoch or len(watch.asked)} recoveries:"
                    " a person is needed"
                )
                watch = replace(watch, given_up=True)
            if not wait:
                watch = replace(watch, epoch=watch.epoch + 1, asked=(*watch.asked, now))
                recoveries.append(_recovery(sight, fault, watch, note))
            note = f"{note}; {wait}" if wait and sight.service not in given_up else note
        notes[sight.service] = given_up.get(sight.service, note)
        following[sight.service] = watch
    return RecoveryDecision(tuple(recoveries), given_up, notes, following)


def classify(
    sight: Sight, watch: Watch, now: float, rule: RecoveryRule = RULE
) -> tuple[Fault | None, str]:
    """What is wrong with a replica, None for nothing; and how it stands, in words.

    The recovery run asks the same again before it acts.
    """
    seen = sight.seen
    if seen is None:
        return (Fault.PROXY, sight.proxy_error) if sight.proxy_error else (None, "answers")
    if sight.desired != "running":
        return None, f"should be {sight.desired}"
    if seen.process is None:
        return None, "its process manager does not answer: nothing is known"
    if not seen.process:
        return _without_process(sight, watch)
    if not seen.live:
        if not watch.answered and now - watch.pid_since < rule.import_seconds:
            return None, "starting"
        return Fault.HUNG, f"the process does not answer: {seen.probe.error}"
    if seen.probe.draining:
        return None, "drains on purpose"
    if not seen.progressing:
        return Fault.STUCK, seen.probe.reason or "work is open and no step ends"
    if not seen.ready:
        loading = any(model.state == "loading" for model in seen.models.values())
        if (loading or not seen.models) and now - watch.pid_since < rule.loading_seconds:
            return None, f"loading: {seen.probe.reason}"
        return Fault.NOT_READY, f"not ready: {seen.probe.reason}"
    if seen.proxy is not None and not seen.proxy.in_rotation:
        return Fault.ASIDE, f"ready, and the proxy has it as {seen.proxy.rotation}"
    return None, "healthy"


def _without_process(sight: Sight, watch: Watch) -> tuple[Fault | None, str]:
    # Once an incident is open, an orderly stop was a step of its recovery.
    if not watch.fault and (sight.ended_on_purpose or watch.drained):
        return None, "stopped on purpose; start it again with reconcile, or declare it stopped"
    if not sight.ran_before and not watch.pid:
        return Fault.NEVER_STARTED, "declared, and not started yet"
    return Fault.GONE, "its process is gone"


def _seen(watch: Watch, sight: Sight, now: float, rule: RecoveryRule) -> Watch:
    """The memory with what this tick shows of the process, and without what is too old."""
    asked = tuple(at for at in watch.asked if now - at < rule.window_seconds)
    watch = replace(watch, asked=asked)
    seen = sight.seen
    if seen is None or not seen.process:
        return watch
    pid = seen.pid or 0
    if pid != watch.pid:
        watch = replace(watch, pid=pid, pid_since=now, answered=False, drained=False)
    return replace(
        watch,
        answered=watch.answered or seen.live,
        drained=seen.probe.draining if seen.live else watch.drained,
    )


def _standing(watch: Watch, fault: Fault | None, sight: Sight, now: float) -> Watch:
    if fault is None:
        healthy = sight.seen is None or sight.seen.healthy or sight.desired != "running"
        if not healthy:
            return watch  # it starts or loads: the incident is open until it serves
        return replace(watch, fault="", since=0.0, epoch=0, given_up=False)
    if watch.fault:
        # One incident, whatever it turns into: a hung process that was killed is then gone.
        return watch if watch.fault == fault else replace(watch, fault=fault.value)
    return replace(watch, fault=fault.value, since=now, epoch=0)


def _reason_to_wait(
    sight: Sight,
    fault: Fault,
    watch: Watch,
    busy: Collection[str],
    now: float,
    rule: RecoveryRule,
) -> str:
    if sight.service in busy:
        return "a run is under way"
    if watch.given_up:
        return "given up: a person is needed"
    lasting = rule.patience[fault] - (now - watch.since)
    if lasting > 0:
        return f"recovered if that lasts another {lasting:.0f} s"
    if watch.epoch:
        pause = rule.first_pause * 2.0 ** (watch.epoch - 1)
        left = watch.asked[-1] + pause - now if watch.asked else 0.0
        if left > 0:
            return f"cool-down: attempt {watch.epoch} did not help, the next in {left:.0f} s"
    return ""


def _recovery(sight: Sight, fault: Fault, watch: Watch, note: str) -> Recovery:
    key = f"recover:{sight.service}:{int(watch.since)}:{watch.epoch}"
    return Recovery(sight.service, fault, watch.since, key, note)


def watches_from_json(value: Mapping[str, Any]) -> dict[str, Watch]:
    """Read a cursor; what can't be read is forgotten rather than fatal."""
    result: dict[str, Watch] = {}
    for service, fields in value.items():
        try:
            result[service] = Watch(**{**fields, "asked": tuple(fields["asked"])})
        except (TypeError, KeyError):
            continue
    return result
