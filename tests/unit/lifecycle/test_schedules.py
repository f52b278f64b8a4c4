"""The timetable: everything on it is on from the start, and nothing is caught up on in vain."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from lifecycle.definitions import build_defs
from lifecycle.schedules import SCHEDULES, stale


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.name)
def test_a_schedule_runs_its_job_on_time_and_skips_what_was_missed(
    schedule: dg.ScheduleDefinition,
) -> None:
    assert schedule.default_status == dg.DefaultScheduleStatus.RUNNING
    repository = build_defs().get_repository_def()
    now = datetime.now(UTC)
    on_time = dg.build_schedule_context(scheduled_execution_time=now, repository_def=repository)
    assert schedule.evaluate_tick(on_time).run_requests
    missed = dg.build_schedule_context(
        scheduled_execution_time=now - timedelta(days=3), repository_def=repository
    )
    skipped = schedule.evaluate_tick(missed)
    assert not skipped.run_requests
    assert "while Dagster was down" in (skipped.skip_message or "")


def test_a_tick_is_stale_only_when_it_is_late() -> None:
    assert stale(due=1000, now=1060, useful_seconds=60) is None
    assert stale(due=1000, now=1061, useful_seconds=60) is not None
