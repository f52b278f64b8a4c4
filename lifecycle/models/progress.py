"""Progress of long work, as lines of the run's log."""

import time
from collections.abc import Callable
from logging import Logger

from registry.progress import Progress


def log_progress(
    log: Logger,
    *,
    every_seconds: float = 2.0,
    clock: Callable[[], float] = time.monotonic,
) -> Progress:
    """Return a progress callback that writes at most one line per ``every_seconds``.

    Each line is a row in Dagster's event log, so there are few of them.
    """
    last = clock()

    def report(label: str, done: int, total: int) -> None:
        nonlocal last
        now = clock()
        if now - last < every_seconds:
            return
        last = now
        share = f", {100 * done // total} %" if total else ""
        log.info(f"{label}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB{share}")

    return report
