"""Which runs that act on the fleet are queued or under way."""

from __future__ import annotations

from dataclasses import dataclass

from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

HOST_TAG = "ironworks/host"
"""One recovery or scale run per host at a time (``dagster.yaml``); its value is the host's name."""
SERVICE_TAG = "ironworks/service"
"""Which replica a recovery is for."""
RECOVERY_PRIORITY = "10"
"""Recovery goes before scaling (5), scaling before reloading (0)."""

RECOVER_REPLICA, RECOVER_HOST = "recover_replica", "recover_host"
SCALE, DRAIN, RELOAD = "scale_replicas", "drain_host", "reload_model"

_UNDER_WAY = [
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]


@dataclass(frozen=True)
class InFlight:
    """Runs that are queued or under way.

    Attributes:
        jobs: names of their jobs.
        services: replicas that a recovery is at.
    """

    jobs: frozenset[str]
    services: frozenset[str]

    @property
    def whole_fleet(self) -> str:
        """A job that acts on every replica of the host, "" if none runs."""
        return next((name for name in (RECOVER_HOST, DRAIN, SCALE) if name in self.jobs), "")

    @property
    def recovering(self) -> bool:
        """Whether anything is being recovered or drained."""
        return bool(self.jobs & {RECOVER_REPLICA, RECOVER_HOST, DRAIN})


def look(instance: DagsterInstance) -> InFlight:
    """Read it from Dagster's run storage."""
    runs = instance.get_runs(filters=RunsFilter(statuses=_UNDER_WAY), limit=200)
    return InFlight(
        frozenset(run.job_name for run in runs),
        frozenset(run.tags.get(SERVICE_TAG, "") for run in runs if run.job_name == RECOVER_REPLICA),
    )


def recovery_waits(instance: DagsterInstance) -> bool:
    """Whether a recovery is queued: whoever holds the host's place for less ends early."""
    waiting = RunsFilter(statuses=[DagsterRunStatus.QUEUED])
    runs = instance.get_runs(filters=waiting, limit=50)
    return any(run.job_name in (RECOVER_REPLICA, RECOVER_HOST) for run in runs)
