"""Which of Dagster's runs may go: a pure decision over what is known of each run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_DAY = 86_400.0


@dataclass(frozen=True)
class RunFacts:
    """One run of Dagster.

    Attributes:
        run_id: its id.
        subject: what it was about: job, partition and selected assets.
        succeeded: whether it ended well.
        ended: when it ended, seconds since 1970; None while it is queued or running.
    """

    run_id: str
    subject: tuple[str, str, frozenset[str]]
    succeeded: bool
    ended: float | None


@dataclass(frozen=True)
class Rules:
    """How long the record of a run stays, in days after its end."""

    success_days: float = 14.0
    other_days: float = 30.0


def decide(runs: Iterable[RunFacts], rules: Rules, now: float) -> list[str]:
    """Ids of the runs that may be deleted, oldest first.

    Deleting a run deletes the materialisations it made, and with them what the UI knows of
    an asset. So the newest success of each subject stays however old it is: a version that
    was deployed a year ago is still shown as deployed. What never ended stays as well.

    Args:
        runs: every run there is.
        rules: the ages.
        now: seconds since 1970.
    """
    ended = sorted((run for run in runs if run.ended is not None), key=lambda run: run.ended or 0.0)
    newest = {run.subject: run.run_id for run in ended if run.succeeded}
    result = []
    for run in ended:
        days = rules.success_days if run.succeeded else rules.other_days
        if (run.ended or 0.0) < now - days * _DAY and newest.get(run.subject) != run.run_id:
            result.append(run.run_id)
    return result
