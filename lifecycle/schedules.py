"""When the jobs run that no event starts. All times are UTC."""

from datetime import UTC, datetime

from dagster import (
    DefaultScheduleStatus,
    RunRequest,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SkipReason,
    schedule,
)
from dagster._core.definitions.target import ExecutableDefinition

from lifecycle.drift.assets import ask_canary, watch_drift
from lifecycle.host.jobs import verify_host
from lifecycle.maintenance.jobs import check_registry, clean_dagster, verify_audit

_MINUTE = 60.0
_HOUR = 60 * _MINUTE


def stale(due: float, now: float, useful_seconds: float) -> str | None:
    """Why a tick that was due at ``due`` is not worth running at ``now``; None if it is.

    A daemon that was down catches up on several ticks at once. Each of these jobs looks at
    the present, so running it five times in a row tells nothing more than running it once.
    """
    late = now - due
    if late <= useful_seconds:
        return None
    return f"due {late / _MINUTE:.0f} min ago, while Dagster was down; the next tick runs"


def every(job: ExecutableDefinition, cron: str, *, useful_seconds: float) -> ScheduleDefinition:
    """Run ``job`` by the clock, switched on from the start.

    Args:
        job: what to run.
        cron: five fields, UTC.
        useful_seconds: how late a tick may be and still run.
    """

    @schedule(
        name=job.name,
        job=job,
        cron_schedule=cron,
        execution_timezone="UTC",
        default_status=DefaultScheduleStatus.RUNNING,
        description=f"{job.name} at {cron!r} (UTC).",
    )
    def tick(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        due = context.scheduled_execution_time
        reason = stale(due.timestamp(), datetime.now(UTC).timestamp(), useful_seconds)
        return RunRequest() if reason is None else SkipReason(reason)

    return tick


# Minutes differ, so that no two start together; the nightly ones follow each other.
SCHEDULES = [
    every(verify_audit, "7 * * * *", useful_seconds=30 * _MINUTE),
    every(watch_drift, "17 * * * *", useful_seconds=30 * _MINUTE),
    every(ask_canary, "*/15 * * * *", useful_seconds=10 * _MINUTE),
    every(verify_host, "40 1 * * *", useful_seconds=6 * _HOUR),
    every(check_registry, "20 2 * * *", useful_seconds=6 * _HOUR),
    every(clean_dagster, "50 2 * * *", useful_seconds=6 * _HOUR),
]
