"""A code location whose one job sleeps, so that its worker can be killed in the middle."""

import time

import dagster as dg


@dg.op
def sleep_long() -> None:
    """Outlast any drill."""
    time.sleep(600)


@dg.job(executor_def=dg.in_process_executor, tags={"ironworks/replica": "replica-1"})
def sleeper() -> None:
    """One replica's job: the instance runs one of these at a time."""
    sleep_long()


defs = dg.Definitions(jobs=[sleeper])
