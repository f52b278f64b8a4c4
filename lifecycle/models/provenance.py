"""Who the audit log names for what a Dagster run did."""

from dagster import DagsterRun

_STARTED_BY = {
    "dagster/sensor_name": "sensor",
    "dagster/schedule_name": "schedule",
    "dagster/backfill": "backfill",
}


def actor_of(run: DagsterRun) -> str:
    """Name what started a run: ``dagster:sensor/model_drop``, or ``dagster:user`` by hand."""
    for tag, kind in _STARTED_BY.items():
        if tag in run.tags:
            return f"dagster:{kind}/{run.tags[tag]}"
    return "dagster:user"
