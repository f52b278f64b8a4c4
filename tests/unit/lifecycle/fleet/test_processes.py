"""Processes with pid files: found again, ended for sure, never mistaken for another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lifecycle.fleet.processes import ProcessError, ProcessTable, tail
from registry.errors import ConflictError

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
DEAF = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('up', flush=True); time.sleep(600)",
]


@pytest.fixture
def table(tmp_path: Path) -> Iterator[ProcessTable]:
    table = ProcessTable(tmp_path / "run")
    yield table
    for record in table.running():
        table.stop(record.name, grace_seconds=0)


def eventually(condition: Callable[[], bool], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def test_a_process_is_found_again_by_another_table(table: ProcessTable, tmp_path: Path) -> None:
    started = table.start("one", SLEEPER, log=tmp_path / "one.log", port=4242)
    found = ProcessTable(tmp_path / "run").find("one")
    assert found == started
    assert [record.name for record in table.running()] == ["one"]


def test_its_output_goes_to_the_log_and_it_leads_its_own_session(
    table: ProcessTable, tmp_path: Path
) -> None:
    log = tmp_path / "log" / "one.log"
    record = table.start("one", SLEEPER, log=log)
    assert eventually(lambda: tail(log, 5) == ["up"])
    assert os.getsid(record.pid) == record.pid


def test_a_second_process_of_one_name_is_refused(table: ProcessTable, tmp_path: Path) -> None:
    first = table.start("one", SLEEPER, log=tmp_path / "one.log")
    with pytest.raises(ConflictError, match="runs already") as refused:
        table.start("one", SLEEPER, log=tmp_path / "one.log")
    assert str(first.pid) in refused.value.where


def test_stop_ends_it_and_forgets_it(table: ProcessTable, tmp_path: Path) -> None:
    record = table.start("one", SLEEPER, log=tmp_path / "one.log")
    assert table.stop("one", grace_seconds=20)
    assert not record.is_running()
    assert table.last("one") is None
    assert not table.stop("one", grace_seconds=20)


def test_a_process_deaf_to_sigterm_is_killed_after_the_grace(
    table: ProcessTable, tmp_path: Path
) -> None:
    log = tmp_path / "deaf.log"
    record = table.start("deaf", DEAF, log=log)
    assert eventually(lambda: tail(log, 1) == ["up"])
    assert table.stop("deaf", grace_seconds=0.2)
    assert not record.is_running()


def test_workers_that_the_leader_left_behind_die_with_it(
    table: ProcessTable, tmp_path: Path
) -> None:
    log = tmp_path / "leader.log"
    leader = (
        "import subprocess, sys, time;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    table.start("leader", [sys.executable, "-c", leader], log=log)
    assert eventually(lambda: tail(log, 1) != [])
    worker = int(tail(log, 1)[0])
    table.stop("leader", grace_seconds=20)
    assert eventually(lambda: not _alive(worker))


def test_a_pid_file_whose_pid_was_given_away_stops_nobody(
    table: ProcessTable, tmp_path: Path
) -> None:
    bystander = subprocess.Popen(SLEEPER, stdout=subprocess.DEVNULL)
    try:
        table.start("one", SLEEPER, log=tmp_path / "one.log")
        path = tmp_path / "run" / "one.json"
        fields = json.loads(path.read_text())
        table.stop("one", grace_seconds=20)
        earlier = fields["start_ticks"] - 1000
        path.write_text(json.dumps({**fields, "pid": bystander.pid, "start_ticks": earlier}))
        assert table.find("one") is None
        assert not table.stop("one", grace_seconds=0)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_pid_file_of_an_earlier_boot_stops_nobody(table: ProcessTable, tmp_path: Path) -> None:
    record = table.start("one", SLEEPER, log=tmp_path / "one.log")
    path = tmp_path / "run" / "one.json"
    before = path.read_text()
    path.write_text(json.dumps({**json.loads(before), "boot_id": "another"}))
    assert not table.stop("one", grace_seconds=0)
    assert record.is_running()
    path.write_text(before)


def test_sigint_reaches_a_process_started_where_it_was_ignored(tmp_path: Path) -> None:
    log = tmp_path / "one.log"
    starter = f"""
import signal, sys
from pathlib import Path
from lifecycle.fleet.processes import ProcessTable
signal.signal(signal.SIGINT, signal.SIG_IGN)
ProcessTable(Path({str(tmp_path / "run")!r})).start("one", {SLEEPER!r}, log=Path({str(log)!r}))
"""
    subprocess.run([sys.executable, "-c", starter], check=True)
    table = ProcessTable(tmp_path / "run")
    record = table.find("one")
    assert record is not None
    assert eventually(lambda: tail(log, 1) == ["up"])
    os.kill(record.pid, signal.SIGINT)
    assert eventually(lambda: not record.is_running())


def test_a_missing_program_is_named(table: ProcessTable, tmp_path: Path) -> None:
    with pytest.raises(ProcessError, match="no such program") as failed:
        table.start("one", [str(tmp_path / "absent")], log=tmp_path / "one.log")
    assert failed.value.where == str(tmp_path / "absent")


def test_a_damaged_pid_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text("{")
    with pytest.raises(ProcessError) as failed:
        ProcessTable(tmp_path).find("one")
    assert failed.value.where.endswith("one.json")


def test_the_tail_of_a_long_log_is_its_end(tmp_path: Path) -> None:
    log = tmp_path / "long.log"
    log.write_text("".join(f"line {n}\n" for n in range(5000)))
    assert tail(log, 2) == ["line 4998", "line 4999"]
    assert tail(tmp_path / "absent.log", 2) == []


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_starter_that_is_killed_leaves_no_process_that_nobody_finds(
    table: ProcessTable, tmp_path: Path
) -> None:
    script = (
        "import os, signal, subprocess, sys; from pathlib import Path\n"
        "from lifecycle.fleet.processes import ProcessTable\n"
        "real = subprocess.Popen\n"
        "def dying(*args, **kwargs):\n"
        "    real(*args, **kwargs); os.kill(os.getpid(), signal.SIGKILL)\n"
        "subprocess.Popen = dying\n"
        "folder = Path(sys.argv[1])\n"
        "ProcessTable(folder / 'run').start('orphan', [sys.executable, '-c', sys.argv[2]],\n"
        "    log=folder / 'orphan.log')\n"
    )
    starter = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), "import time; time.sleep(60)"], timeout=60
    )
    assert starter.returncode == -signal.SIGKILL
    # Whoever starts it next waits for the first one's pid file, and finds it running.
    with pytest.raises(ConflictError, match="orphan runs already"):
        ProcessTable(tmp_path / "run").start(
            "orphan", [sys.executable, "-c", ""], log=tmp_path / "orphan.log"
        )
    assert ProcessTable(tmp_path / "run").stop("orphan", grace_seconds=5)
