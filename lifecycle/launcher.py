"""A run launcher that notices when a run's worker process has died.

Dagster's default launcher starts each run in a child of the code server and never looks
at it again: if the worker and the code server are both killed, the run stays STARTED for
ever and keeps its place under every concurrency limit. This one answers the daemon's
health question (``run_monitoring`` in ``dagster.yaml``) from the process table.
"""

import re

import psutil
from dagster import DagsterEventType, DagsterRun, DefaultRunLauncher
from dagster._core.launcher.base import CheckRunHealthResult, WorkerStatus

_WORKER_STARTED = re.compile(r"^Started process for (?:run|resuming job) \(pid: (\d+)\)\.$")


def is_worker(pid: int) -> bool:
    """Whether ``pid`` is a live Dagster worker: not gone, not a zombie, not someone else.

    A reused pid is told by its command line and not by its start time, since start times
    move when the wall clock is set and a healthy run would then be failed. If another
    worker has the pid, the question is answered rightly once that one has ended.
    """
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return any("multiprocessing" in part or "dagster" in part for part in process.cmdline())
    except psutil.AccessDenied:
        return True
    except psutil.NoSuchProcess:
        return False


class LocalRunLauncher(DefaultRunLauncher):
    """``DefaultRunLauncher`` plus a health check of worker processes on this host."""

    @property
    def supports_check_run_worker_health(self) -> bool:
        """True: the daemon asks about every started run at each monitoring poll."""
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Say whether the worker of a started run is still there.

        A run that never named its worker (``dagster job execute`` runs in the foreground)
        counts as running: only evidence of death may fail a run.
        """
        pid = self._worker_pid(run)
        if pid is None:
            return CheckRunHealthResult(WorkerStatus.RUNNING, "The run has not named its process.")
        if is_worker(pid):
            return CheckRunHealthResult(WorkerStatus.RUNNING, run_worker_id=str(pid))
        return CheckRunHealthResult(
            WorkerStatus.FAILED,
            f"The run's process {pid} is gone: it was killed, or ran out of memory.",
            run_worker_id=str(pid),
        )

    def _worker_pid(self, run: DagsterRun) -> int | None:
        """Return the pid of the last worker that the run's event log names."""
        records = self._instance.get_records_for_run(
            run.run_id, of_type=DagsterEventType.ENGINE_EVENT, ascending=False
        ).records
        for record in records:
            message = record.event_log_entry.get_dagster_event().message or ""
            found = _WORKER_STARTED.match(message)
            if found:
                return int(found.group(1))
        return None
