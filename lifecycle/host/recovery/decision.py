"""When a sensor starts ``recover_host``: a pure decision over what it saw and what was done."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from lifecycle.host.recovery.diagnosis import Course, Diagnosis
from lifecycle.host.recovery.record import MAX_ATTEMPTS, RecoveryRecord

COOL_DOWN_SECONDS = 60.0
"""Pause after an attempt that did not help: the driver settles, a person may look."""


@dataclass(frozen=True)
class HostWatchState:
    """What the sensor remembers of a host between two ticks.

    Attributes:
        fault_at: when the fault that stands was first seen, seconds since 1970; None: none.
        epoch: recoveries asked for since then.
        asked_at: when the latest was asked for.
    """

    fault_at: float | None = None
    epoch: int = 0
    asked_at: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Plain values, for a cursor."""
        return asdict(self)


@dataclass(frozen=True)
class HostDecision:
    """What the sensor does.

    Attributes:
        action: ``recover`` starts the job, also to drain a host that needs a reboot.
        reason: with the inputs, in words.
        state: to remember.
        run_key: for the job; the same fault asked for twice has another epoch.
        fault_at: for the job's ``confirm_fault``.
    """

    action: Literal["nothing", "recover"]
    reason: str
    state: HostWatchState
    run_key: str = ""
    fault_at: float = 0.0


def decide(
    host: str,
    diagnosis: Diagnosis,
    history: RecoveryRecord,
    state: HostWatchState,
    *,
    boot_id: str,
    busy: bool,
    now: float,
) -> HostDecision:
    """Decide whether to recover the host now.

    A fault starts the job at first sight: its first rung looks twice more. A host that was
    given up stays so until it is rebooted or a person runs the job.

    Args:
        host: its name.
        diagnosis: of the look just taken.
        history: how its recoveries went.
        state: from the last tick.
        boot_id: of this boot.
        busy: a recovery of this host is queued or runs.
        now: seconds since 1970.
    """
    rebooted = history.given_up is not None and history.given_up.boot_id != boot_id
    if diagnosis.course is Course.NONE:
        if rebooted and history.drained and not busy:
            return _ask(host, "the host was rebooted: bring its replicas back", state, now)
        return HostDecision("nothing", diagnosis.reason, HostWatchState())
    if busy:
        return HostDecision("nothing", f"a recovery is under way: {diagnosis.reason}", state)
    if state.fault_at is not None and history.healthy_at > state.fault_at:
        state = HostWatchState()  # that one was cured, and no tick came between it and this one
    state = replace(state, fault_at=state.fault_at or now)
    if history.given_up is not None and not rebooted:
        return HostDecision("nothing", f"given up: {history.given_up.reason}", state)
    waited = now - max(state.asked_at, _last_failure(history))
    if waited < COOL_DOWN_SECONDS:
        return HostDecision(
            "nothing",
            f"cool-down, {waited:.0f} of {COOL_DOWN_SECONDS:.0f} s, after attempt "
            f"{history.recent(now)} of {MAX_ATTEMPTS}: {diagnosis.reason}",
            state,
        )
    return _ask(host, diagnosis.reason, state, now)


def _ask(host: str, reason: str, state: HostWatchState, now: float) -> HostDecision:
    fault_at = state.fault_at or now
    epoch = state.epoch + 1
    return HostDecision(
        "recover",
        reason,
        HostWatchState(fault_at, epoch, now),
        run_key=f"recover:{host}:{int(fault_at)}:{epoch}",
        fault_at=fault_at,
    )


def _last_failure(history: RecoveryRecord) -> float:
    failed = (attempt for attempt in history.attempts if not attempt.recovered)
    return max((attempt.ended or attempt.started for attempt in failed), default=0.0)
