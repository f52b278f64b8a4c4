"""When the sensor starts a recovery, and when it leaves a host alone."""

from __future__ import annotations

from dataclasses import replace

from lifecycle.host.recovery.decision import HostDecision, HostWatchState, decide
from lifecycle.host.recovery.diagnosis import Course, Diagnosis
from lifecycle.host.recovery.record import Attempt, GivenUp, RecoveryRecord

NOW = 1_000_000.0
BROKEN = Diagnosis(Course.RECOVER, "the GPU is lost")
HEALTHY = Diagnosis(Course.NONE, "the GPUs answer")
CLEAN = RecoveryRecord()


def ask(
    diagnosis: Diagnosis = BROKEN,
    history: RecoveryRecord = CLEAN,
    state: HostWatchState | None = None,
    *,
    busy: bool = False,
    now: float = NOW,
    boot_id: str = "boot-1",
) -> HostDecision:
    state = state or HostWatchState()
    return decide("gpu1", diagnosis, history, state, boot_id=boot_id, busy=busy, now=now)


def test_a_fault_is_acted_on_at_first_sight() -> None:
    found = ask()
    assert found.action == "recover"
    assert found.run_key == f"recover:gpu1:{int(NOW)}:1"
    assert found.fault_at == NOW


def test_a_reboot_that_is_needed_is_brought_to_the_job_too() -> None:
    assert ask(Diagnosis(Course.REBOOT, "Xid 79")).action == "recover"


def test_a_healthy_host_is_left_alone_and_the_fault_forgotten() -> None:
    found = ask(HEALTHY, state=HostWatchState(NOW - 60, 1, NOW - 60))
    assert (found.action, found.state) == ("nothing", HostWatchState())


def test_one_recovery_at_a_time() -> None:
    found = ask(state=HostWatchState(NOW - 10, 1, NOW - 10), busy=True)
    assert found.action == "nothing"
    assert "under way" in found.reason


def test_after_a_failed_attempt_it_waits_and_asks_with_another_key() -> None:
    failed = RecoveryRecord(attempts=(Attempt("run", NOW - 40, NOW - 10),), total_attempts=1)
    state = HostWatchState(NOW - 50, 1, NOW - 45)
    paused = ask(history=failed, state=state)
    assert paused.action == "nothing"
    assert "cool-down" in paused.reason and "attempt 1 of 2" in paused.reason
    again = ask(history=failed, state=paused.state, now=NOW + 51)
    assert again.run_key == f"recover:gpu1:{int(NOW - 50)}:2"
    assert again.fault_at == NOW - 50, "the fault is as old as it is"


def test_a_host_that_was_given_up_is_left_alone_until_it_is_rebooted() -> None:
    history = RecoveryRecord(
        drained=("replica-8000",), given_up=GivenUp(NOW - 900, "boot-1", "Xid 79", True)
    )
    for later in range(0, 7200, 10):
        found = ask(history=history, now=NOW + later)
        assert found.action == "nothing"
        assert "given up: Xid 79" in found.reason
    assert ask(HEALTHY, history).action == "nothing", "healthy again without a reboot: a person"
    back = ask(HEALTHY, history, boot_id="boot-2")
    assert back.action == "recover"
    assert "rebooted" in back.reason


def test_a_reboot_with_nothing_to_bring_back_needs_no_job() -> None:
    history = replace(CLEAN, given_up=GivenUp(NOW - 900, "boot-1", "Xid 79", True))
    assert ask(HEALTHY, history, boot_id="boot-2").action == "nothing"


def test_a_new_fault_right_after_a_cure_is_no_continuation() -> None:
    cured = RecoveryRecord(
        attempts=(Attempt("run", NOW - 40, NOW - 10, recovered=True),), healthy_at=NOW - 10
    )
    found = ask(history=cured, state=HostWatchState(NOW - 50, 1, NOW - 45))
    assert found.action == "recover", "no cool-down after what has helped"
    assert found.run_key == f"recover:gpu1:{int(NOW)}:1"
    assert found.fault_at == NOW
