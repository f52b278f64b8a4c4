"""A code location with one job that sleeps, to kill its worker under a real daemon."""

import time

import dagster as dg


@dg.op
def sleep_long() -> None:
    time.sleep(600)


@dg.job(executor_def=dg.in_process_executor)
def sleeper() -> None:
    sleep_long()


defs = dg.Definitions(jobs=[sleeper])
