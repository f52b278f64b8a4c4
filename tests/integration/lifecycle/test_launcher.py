"""A run whose worker and code server were both killed is failed by the real daemon."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.drills.worker import kill_worker_and_code_server
from lifecycle.launcher import is_worker


@pytest.mark.timeout(400)
def test_a_run_fails_when_its_worker_and_the_code_server_are_gone(tmp_path: Path) -> None:
    # It returns only once a run that waited for the failed one's place has started.
    seen = kill_worker_and_code_server(tmp_path)
    assert f"process {seen['worker']} is gone" in str(seen["reason"])


def test_a_pid_that_belongs_to_someone_else_is_not_a_worker() -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        assert not is_worker(other.pid)
        other.kill()
        # Not reaped yet: a zombie.
        deadline = time.monotonic() + 10
        while psutil.Process(other.pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
        assert not is_worker(other.pid)
    finally:
        other.kill()
        other.wait()
    assert not is_worker(other.pid)
