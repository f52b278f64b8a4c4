"""A program under limits ends when it should, and nothing of it is left."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from lifecycle.gates.limited_process import Limits, run_limited

LIMITS = Limits(wall_seconds=60, cpu_seconds=60, address_space_bytes=0)
ENV = {"PATH": os.environ["PATH"]}


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


def test_output_and_exit_code_come_back() -> None:
    ended = run_limited(
        python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"),
        env=ENV,
        limits=LIMITS,
    )
    assert (ended.exit_code, ended.stdout, ended.stderr_tail) == (3, "out\n", "err\n")
    assert ended.why == "it exited with 3"


def test_the_deadline_ends_it() -> None:
    limits = Limits(wall_seconds=0.5, cpu_seconds=60, address_space_bytes=0)
    ended = run_limited(python("import time; time.sleep(600)"), env=ENV, limits=limits)
    assert ended.exit_code is None


def test_a_grandchild_does_not_survive_its_parent(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = (
        "import subprocess, sys, pathlib;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        f"pathlib.Path({str(note)!r}).write_text(str(child.pid))"
    )
    ended = run_limited(python(code), env=ENV, limits=LIMITS)
    assert ended.exit_code == 0
    grandchild = int(note.read_text())
    try:
        psutil.Process(grandchild).wait(timeout=30)
    except psutil.NoSuchProcess:
        pass
    except psutil.TimeoutExpired:
        pytest.fail("the grandchild still runs")


def test_memory_is_limited() -> None:
    limits = Limits(wall_seconds=60, cpu_seconds=60, address_space_bytes=512 * 1024**2)
    code = "import time; time.sleep(0.5); bytearray(1024**3)"
    ended = run_limited(python(code), env=ENV, limits=limits)
    assert ended.exit_code == 1
    assert "MemoryError" in ended.stderr_tail


def test_processor_time_is_limited() -> None:
    limits = Limits(wall_seconds=60, cpu_seconds=1, address_space_bytes=0)
    ended = run_limited(python("while True: pass"), env=ENV, limits=limits)
    assert ended.exit_code is not None and ended.exit_code < 0


def test_endless_output_is_cut_off() -> None:
    limits = Limits(wall_seconds=60, cpu_seconds=60, address_space_bytes=0, file_bytes=10_000)
    ended = run_limited(
        python("import time; time.sleep(0.5)\nwhile True: print('x' * 999)"), env=ENV, limits=limits
    )
    assert len(ended.stdout) <= 10_000


def test_only_the_given_environment_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "value")
    ended = run_limited(python("import os; print(sorted(os.environ))"), env=ENV, limits=LIMITS)
    assert "SECRET_TOKEN" not in ended.stdout
