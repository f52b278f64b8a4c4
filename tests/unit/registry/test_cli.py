"""The commands as a person runs them: what is printed, and the exit status."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from registry.cli import audit_app, registry_app
from registry.errors import CheckpointError, DatabaseError, InputError, PolicyError
from registry.paths import StatePaths
from registry.store import Registry
from tests.support.checkpoints import flip_byte
from tests.support.plain_checkpoint import SHARDS, write_checkpoint, write_config
from tests.support.registered import promote


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StatePaths:
    monkeypatch.setenv("IRONWORKS_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("IRONWORKS_ACTOR", "alice")
    return StatePaths.from_env()


def run(*arguments: str, status: int = 0) -> Result:
    app = {"registry": registry_app, "audit": audit_app}[arguments[0]]
    result = CliRunner().invoke(app, arguments[1:])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == status, result.output
    return result


def read(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


def add(directory: Path, version: str = "v1") -> Result:
    return run("registry", "add", str(directory), "--model", "tiny", "--version", version)


def test_a_version_from_its_directory_to_production_and_back(
    state: StatePaths, checkpoint: Path, tmp_path: Path
) -> None:
    assert add(checkpoint).stdout.startswith("tiny@v1 ")
    add(write_checkpoint(tmp_path / "two", fill=7), "v2")
    with Registry.open(state.registry) as registry:
        promote(registry, "tiny@v1")
        for gate in registry.gates("tiny@v1"):
            registry.record_gate(
                "tiny@v2", gate=gate.gate, outcome="pass", numbers={}, actor="a", run_id="r"
            )
    run("registry", "promote", "tiny@v2", "--reason", "better")
    listing = run("registry", "list").stdout.splitlines()
    assert listing[2].split()[0] == "tiny@v2" and listing[2].split()[-1] == "production"
    assert "tiny:production -> tiny@v1" in run("registry", "rollback", "tiny").stdout

    events = read("audit", "trace", "tiny@v2")["events"]
    assert [(e["kind"], e["actor"]) for e in events[-2:]] == [
        ("alias.moved", "alice"),
        ("alias.rolled_back", "alice"),
    ]
    assert events[-2]["body"]["reason"] == "better"
    shown = read("registry", "show", "tiny@v1")
    assert [alias["alias"] for alias in shown["aliases"]] == ["production"]
    assert len(read("registry", "gates", "tiny@v1")["gates"]) == 4
    assert read("audit", "verify")["ok"] is True
    assert len(read("audit", "timeline")["events"]) == 3


def test_every_read_carries_the_log_head(checkpoint: Path, state: StatePaths) -> None:
    add(checkpoint)
    with Registry.open(state.registry) as registry:
        head = {"seq": 1, "hash_hex": registry.audit.head().hash_hex}
    for arguments in (
        ("registry", "list"),
        ("registry", "show", "tiny@v1"),
        ("registry", "gates", "tiny@v1"),
        ("registry", "fsck"),
        ("audit", "as-of", "--at", "now"),
        ("audit", "trace", "tiny@v1"),
        ("audit", "timeline"),
    ):
        assert read(*arguments)["head"] == head
    assert read("audit", "verify")["verification"]["head"] == head


def test_adding_an_unsafe_directory_stores_nothing(checkpoint: Path, state: StatePaths) -> None:
    (checkpoint / "weights.pkl").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"weights\.pkl"):
        add(checkpoint)
    assert not state.registry.exists()


def test_adding_warns_of_a_config_that_does_not_fit(checkpoint: Path) -> None:
    write_config(checkpoint, vocab_size=15)
    assert "warning: tokenizer.json: wrong tokenizer" in add(checkpoint).stdout


def test_promotion_from_the_command_line_goes_through_policy(checkpoint: Path) -> None:
    add(checkpoint)
    with pytest.raises(PolicyError, match="loads_and_answers: no result"):
        run("registry", "promote", "tiny@v1")


@pytest.mark.parametrize("command", [("registry", "list"), ("audit", "verify")])
def test_without_a_registry_the_command_to_make_one_is_named(command: tuple[str, str]) -> None:
    with pytest.raises(DatabaseError, match="ironworks registry init"):
        run(*command)
    run("registry", "init")
    run(*command)


def test_verify_exits_1_and_names_the_row(checkpoint: Path, state: StatePaths) -> None:
    add(checkpoint)
    with closing(sqlite3.connect(state.registry / "registry.db")) as connection, connection:
        connection.execute("DROP TRIGGER audit_event_no_update")
        connection.execute("UPDATE audit_event SET actor = 'mallory'")
    output = run("audit", "verify", status=1).stdout
    assert output.startswith("broken: row 1: its content was changed")
    assert "audit_event_no_update was removed" in output


def test_fsck_exits_1_and_names_the_file(checkpoint: Path, state: StatePaths) -> None:
    add(checkpoint)
    run("registry", "fsck")
    with Registry.open(state.registry) as registry:
        flip_byte(registry.view("tiny@v1") / SHARDS[0])
    assert f"problem: tiny@v1/{SHARDS[0]}" in run("registry", "fsck", status=1).stdout


def test_export_to_a_new_file_only(checkpoint: Path, tmp_path: Path) -> None:
    add(checkpoint)
    out = tmp_path / "log.csv"
    summary = run("audit", "export", "--format", "csv", "--out", str(out)).stderr
    assert summary.startswith("1 rows, sha256 ")
    assert len(out.read_text().splitlines()) == 2
    with pytest.raises(InputError, match="new file"):
        run("audit", "export", "--out", str(out))
    (line,) = run("audit", "export").stdout.splitlines()
    assert json.loads(line)["kind"] == "version.registered"


def test_bad_input_is_named(checkpoint: Path) -> None:
    add(checkpoint)
    with pytest.raises(InputError, match="yesterday"):
        run("audit", "as-of", "--at", "yesterday")
    with pytest.raises(InputError, match="names no version"):
        run("audit", "trace", "tiny")
    run("audit", "as-of", status=2)


def test_markup_in_a_reason_is_printed_as_it_is(checkpoint: Path, state: StatePaths) -> None:
    add(checkpoint)
    with Registry.open(state.registry) as registry:
        for gate in registry.policy.rule("candidate").gates:
            registry.record_gate(
                "tiny@v1", gate=gate, outcome="pass", numbers={}, actor="a", run_id="r"
            )
        registry.promote("tiny@v1", alias="candidate", actor="[b]a", reason="[red]x[/red]")
    output = run("audit", "timeline").stdout
    assert "reason=[red]x[/red]" in output and "[b]a" in output


def test_backup(checkpoint: Path, tmp_path: Path) -> None:
    add(checkpoint)
    run("registry", "backup", str(tmp_path / "copy.db"))
    with closing(sqlite3.connect(tmp_path / "copy.db")) as connection:
        assert connection.execute("SELECT count(*) FROM audit_event").fetchone() == (1,)
    assert "schema" in run("registry", "migrate").stdout
