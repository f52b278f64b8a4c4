"""Follows Dagster runs and tells their steps, so that `make up` shows the lifecycle at work."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator
from typing import Any

from lifecycle.stack.graphql import DagsterClient, DagsterError, Run

POLL_SECONDS = 0.5


def await_run(
    client: DagsterClient,
    job: str,
    partition: str,
    *,
    seconds: float,
    waiting_for: str,
    say: Callable[[str], None],
    needless: Callable[[], bool],
    ended: Container[str] = (),
) -> Run | None:
    """Wait until a sensor has started a run of a job for one partition.

    Args:
        client: of the web server.
        job: name of the job.
        partition: the model version.
        seconds: how long to wait.
        waiting_for: what starts the run, in words.
        say: is told that we wait.
        needless: asked each time; once true there is nothing to wait for.
        ended: runs that are over and are not meant.

    Returns:
        The latest run, or None if it was not needed.

    Raises:
        DagsterError: no run was started in time.
    """
    deadline = time.monotonic() + seconds
    told = 0.0
    while time.monotonic() < deadline:
        if needless():
            return None
        latest = client.runs(job, partition)
        if latest and latest[0].run_id not in ended:
            return latest[0]
        if time.monotonic() - told > 5:
            told = time.monotonic()
            say(f"waiting for {waiting_for}")
        time.sleep(POLL_SECONDS)
    raise DagsterError(
        f"no run of {job} for {partition} within {seconds:.0f} s",
        where=waiting_for,
        fix="see the sensor's ticks in the Dagster UI: they say what it waits for",
    )


def follow(
    client: DagsterClient, run: Run, partition: str, url: str, say: Callable[[str], None]
) -> None:
    """Tell a run's steps until it ends.

    Args:
        client: of the web server.
        run: which.
        partition: of the run.
        url: of the web server, to point at the run.
        say: is told each step.

    Raises:
        DagsterError: the run failed or was cancelled; says why.
    """
    cursor: str | None = None
    why = ""
    while True:
        # The status first: events written before it became final are on the pages after it.
        current = next(
            (r for r in client.runs(run.job, partition, limit=10) if r.run_id == run.run_id), run
        )
        while True:
            page = client.events(run.run_id, cursor)
            for event in page.events:
                for line in describe(event):
                    say(line)
                why = _failure(event) or why
            if not page.events or page.cursor == cursor:
                break
            cursor = page.cursor
        if current.ended:
            break
        time.sleep(POLL_SECONDS)
    if current.status != "SUCCESS":
        raise DagsterError(
            f"{run.job} for {partition} ended as {current.status}: {why or 'see the run'}"[:1500],
            where=f"{url}/runs/{run.run_id}",
            fix="mend the cause, then re-execute the run there",
        )


def describe(event: dict[str, Any]) -> Iterator[str]:
    """Put one event of a run into words, if it says something to a person."""
    kind, step = event["__typename"], event.get("stepKey") or ""
    if kind == "ExecutionStepStartEvent":
        yield f"{step} …"
    elif kind == "ExecutionStepSuccessEvent":
        yield f"{step} done"
    elif kind == "ExecutionStepFailureEvent":
        yield f"{step} FAILED"
    elif kind == "AssetCheckEvaluationEvent":
        evaluation = event["evaluation"]
        outcome = "passed" if evaluation["success"] else "FAILED"
        yield f"  check {evaluation['checkName']}: {outcome}"
    elif kind == "LogMessageEvent" and event.get("level") in ("INFO", "WARNING"):
        yield f"  {event.get('message', '')[:100]}"


def _failure(event: dict[str, Any]) -> str:
    """The innermost reason that a failure event gives, "" for any other event."""
    if event["__typename"] == "AssetCheckEvaluationEvent":
        evaluation = event["evaluation"]
        if not evaluation["success"]:
            return f"check {evaluation['checkName']}: {evaluation['description'] or 'failed'}"
    error = event.get("error") if event["__typename"] == "ExecutionStepFailureEvent" else None
    if not error:
        return ""
    causes = error.get("causes") or []
    return str((causes[-1] if causes else error)["message"]).strip()
