"""A command's deadline holds, whatever the command does."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from lifecycle.host.commands import AbandonedChildrenError, ProcessRunner


def test_a_command_ends_with_its_status_and_output() -> None:
    ran = ProcessRunner()(["sh", "-c", "cat; echo no >&2; exit 3"], deadline_seconds=10, stdin="hi")
    assert (ran.exit_code, ran.stdout, ran.stderr) == (3, "hi", "no\n")
    assert not ran.ok
    assert ran.why == "sh ended with 3: no"


def test_a_program_that_is_not_there_is_no_exception() -> None:
    ran = ProcessRunner()(["no-such-program"], deadline_seconds=10)
    assert not ran.found
    assert ran.why == "there is no program no-such-program"


def test_variables_decide_which_program_is_found(tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho here\n")
    tool.chmod(0o755)
    run = ProcessRunner({"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert run(["nvidia-smi"], deadline_seconds=10).stdout == "here\n"


def test_at_the_deadline_the_whole_group_is_killed() -> None:
    ran = ProcessRunner()(["sh", "-c", "sleep 60 & echo $!; wait"], deadline_seconds=0.5)
    assert ran.exit_code is None
    assert "did not finish" in ran.why
    grandchild = int(ran.stdout)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{grandchild}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.02)
    pytest.fail("a grandchild outlived the deadline")


def test_a_child_that_cant_be_killed_is_left_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    # A kernel wait that ignores SIGKILL can't be made at will: the signal is held back instead.
    held: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, _: held.append(group))
    run = ProcessRunner(max_abandoned=1)
    try:
        ran = run(["sleep", "60"], deadline_seconds=0.1)
        assert ran.abandoned
        assert "hangs in the kernel" in ran.why
        with pytest.raises(AbandonedChildrenError, match="hang in the kernel"):
            run(["true"], deadline_seconds=10)
    finally:
        for group in held:
            os.kill(group, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while run.abandoned and time.monotonic() < deadline:
        time.sleep(0.02)
    assert run(["true"], deadline_seconds=10).ok, "when it has died, there is room again"
