"""The limit on attempts, and the file that keeps it."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from lifecycle.host.recovery.record import (
    WINDOW_SECONDS,
    GivenUp,
    RecoveryRecord,
    load,
    save,
)
from registry.paths import StatePaths


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    paths = StatePaths(tmp_path)
    assert load(paths) == RecoveryRecord()
    record = RecoveryRecord(
        drained=("replica-8000",),
        stopped_units=("nvidia-dcgm.service",),
        driver_recovered_seconds=12.5,
        given_up=GivenUp(1.0, "boot", "Xid 79", True),
    ).begin("run-1", 5.0)
    save(paths, record)
    assert load(paths) == record


def test_an_attempt_that_was_cut_off_counts() -> None:
    record = RecoveryRecord().begin("run-1", 0.0).begin("run-2", 60.0)
    assert record.recent(61.0) == 2
    assert record.recent(61.0 + WINDOW_SECONDS) == 0
    assert record.total_attempts == 2


def test_a_run_that_begins_twice_is_one_attempt_and_only_its_own_end_counts() -> None:
    record = RecoveryRecord().begin("run-1", 0.0).begin("run-1", 1.0)
    assert record.recent(2.0) == 1
    assert record.end("run-2", 3.0, recovered=True) == record
    assert record.end("run-1", 3.0, recovered=True).attempts[0].recovered


@given(st.lists(st.floats(0, 1e6), max_size=60))
def test_the_file_does_not_grow_without_bound(times: list[float]) -> None:
    record = RecoveryRecord()
    for number, time in enumerate(sorted(times)):
        record = record.begin(f"run-{number}", time)
    assert len(record.attempts) <= 20
    assert record.total_attempts == len(times)
