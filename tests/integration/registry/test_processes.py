"""Real processes on one registry: many at once, killed in the middle, out of space."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from registry.fsck import fsck
from registry.store import Registry
from tests.support.plain_checkpoint import write_checkpoint
from tests.support.registered import add_version

PYTHON = (sys.executable, "-c")


def start(program: str, *arguments: str, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PYTHON, program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,  # type: ignore[call-overload]
    )


APPEND = """
import sys
from pathlib import Path
from registry.store import Registry
with Registry.open(Path(sys.argv[1])) as registry:
    print("ready", flush=True)
    for number in range(int(sys.argv[3])):
        with registry.database.write() as connection:
            registry.audit.append(
                connection, kind="test", actor=sys.argv[2], subject="x", body={"n": number}
            )
        print(number, flush=True)
"""


def test_ten_processes_that_open_and_append_at_once_lose_nothing(tmp_path: Path) -> None:
    # The database doesn't exist yet, so they also race to create and migrate it.
    root = str(tmp_path / "registry")
    workers = [start(APPEND, root, f"worker-{number}", "10") for number in range(10)]
    for worker in workers:
        _, errors = worker.communicate(timeout=150)
        assert worker.returncode == 0, errors
    with Registry.open(tmp_path / "registry") as registry:
        events = list(registry.audit.events())
        assert registry.audit.verify().ok
    assert [event.seq for event in events] == list(range(1, 101))
    assert Counter(event.actor for event in events) == {f"worker-{n}": 10 for n in range(10)}
    for worker_number in range(10):
        own = [e.body["n"] for e in events if e.actor == f"worker-{worker_number}"]
        assert own == list(range(10))


MOVE = """
import sys
from pathlib import Path
from registry.errors import ConflictError
from registry.store import Registry
with Registry.open(Path(sys.argv[1])) as registry:
    try:
        registry.promote(
            sys.argv[2], alias="candidate", actor=sys.argv[2], reason="race", expected=None
        )
        print("won")
    except ConflictError:
        print("lost")
"""


def test_of_two_promotions_that_expect_the_same_one_wins(tmp_path: Path) -> None:
    names = ("tiny@v1", "tiny@v2", "tiny@v3")
    with Registry.open(tmp_path / "registry") as registry:
        for fill, name in enumerate(names):
            add_version(registry, write_checkpoint(tmp_path / name, fill=fill), name)
            for gate in registry.policy.rule("candidate").gates:
                registry.record_gate(
                    name, gate=gate, outcome="pass", numbers={}, actor="a", run_id="r"
                )
    racers = [start(MOVE, str(tmp_path / "registry"), name) for name in names]
    said = [racer.communicate(timeout=100)[0].strip() for racer in racers]
    assert sorted(said) == ["lost", "lost", "won"]
    with Registry.open(tmp_path / "registry") as registry:
        moves = [e for e in registry.audit.events() if e.kind == "alias.moved"]
        (alias,) = registry.aliases()
        assert [event.actor for event in moves] == [names[said.index("won")]]
        assert (alias.digest, alias.revision) == (moves[0].body["to"], 1)


def test_what_a_killed_process_was_told_is_recorded_stays_recorded(tmp_path: Path) -> None:
    acknowledged = 0
    for round_number in range(3):
        worker = start(APPEND, str(tmp_path / "registry"), "victim", "100000")
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        for _ in range(5 + round_number):
            worker.stdout.readline()
            acknowledged += 1
        os.kill(worker.pid, signal.SIGKILL)
        acknowledged += len(worker.communicate(timeout=30)[0].splitlines())
        assert worker.returncode == -signal.SIGKILL
        with Registry.open(tmp_path / "registry") as registry:
            result = registry.audit.verify()
            assert result.ok
            # One more may be committed but not yet told, in each round.
            assert acknowledged <= result.rows <= acknowledged + round_number + 1
            acknowledged = result.rows


INGEST = """
import sys
from pathlib import Path
from registry.store import Registry
source = Path(sys.argv[2])
with Registry.open(Path(sys.argv[1])) as registry:
    manifest = registry.build_manifest(source)
    print("hashed", flush=True)
    registry.ingest(source, manifest)
    print(registry.register(manifest, model="m", version="v1", actor="a", source="s").digest)
"""


def big_directory(path: Path, megabytes: int) -> Path:
    write_checkpoint(path)
    with (path / "notes.txt").open("wb") as file:
        for number in range(megabytes):
            file.write(number.to_bytes(4, "big") * (1 << 18))
    return path


def test_an_ingest_killed_half_way_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    root, source = tmp_path / "registry", big_directory(tmp_path / "source", 64)
    worker = start(INGEST, str(root), str(source))
    assert worker.stdout is not None
    assert worker.stdout.readline() == "hashed\n"
    while not list((root / "blobs" / "incoming").glob("*")):
        assert worker.poll() is None, "it ended before it could be killed"
    worker.kill()
    worker.communicate(timeout=30)
    with Registry.open(root) as registry:
        assert registry.versions() == []
        assert fsck(registry).problems == ()
        version = add_version(registry, source, "m@v1")
        assert registry.check_integrity(version.digest) == []


def test_two_ingests_of_the_same_content_both_succeed(tmp_path: Path) -> None:
    root, source = tmp_path / "registry", big_directory(tmp_path / "source", 16)
    workers = [start(INGEST, str(root), str(source)) for _ in range(2)]
    results = [worker.communicate(timeout=100) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], results
    assert results[0][0] == results[1][0]
    with Registry.open(root) as registry:
        assert fsck(registry).problems == ()
        assert [event.kind for event in registry.audit.events()] == ["version.registered"]


LIMITED = """
import sys
from pathlib import Path
from registry.errors import IronworksError
try:
    exec(sys.argv[3])
except IronworksError as error:
    print(error.code, "|", error)
    sys.exit(2)
"""


@pytest.mark.parametrize("program", ["ingest", "append"])
def test_no_space_is_an_error_with_advice_and_loses_nothing(tmp_path: Path, program: str) -> None:
    """A limit on the size of files stands in for the full disk: the same failing writes."""
    root, source = tmp_path / "registry", big_directory(tmp_path / "source", 8)
    with Registry.open(root) as registry:
        add_version(registry, write_checkpoint(tmp_path / "first"), "m@v0")
        before = registry.audit.head()
    code = INGEST if program == "ingest" else APPEND.replace("print(number, flush=True)", "")
    size = 4 << 20 if program == "ingest" else (root / "registry.db").stat().st_size
    last = [str(source)] if program == "ingest" else ["x" * 400, "10000"]
    worker = start(
        LIMITED.replace("sys.argv[3]", "sys.argv.pop()"),
        str(root),
        *last,
        code,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
    )
    output, errors = worker.communicate(timeout=100)
    assert (worker.returncode, errors) == (2, "")
    assert output.splitlines()[-1].startswith("database | ")
    with Registry.open(root) as registry:
        assert fsck(registry).problems == ()
        assert registry.audit.head().seq >= before.seq
        assert [version.name for version in registry.versions()] == ["m@v0"]
