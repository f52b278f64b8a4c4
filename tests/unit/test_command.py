"""The `ironworks` command itself: one shape of error, and nothing imported before it is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ironworks
from registry.errors import InputError


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ironworks", *arguments], capture_output=True, text=True
    )


def test_help_lists_every_command_and_imports_none() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, ironworks; ironworks.run(['--help']); "
            "print(sorted({'typer', 'dagster', 'torch', 'sqlalchemy'} & set(sys.modules)))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(f"  {name} " in done.stdout for name in ironworks.COMMANDS)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", sorted(ironworks.COMMANDS))
def test_every_command_explains_itself(name: str) -> None:
    done = command(name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"ironworks {name}" in done.stdout


def test_an_error_is_three_plain_lines_and_status_2() -> None:
    done = command("up", "--port", "8000", "--dagster-port", "8000")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: two servers can't listen on port 8000",
        "where: PORT, DAGSTER_PORT",
        "fix: choose two different ports",
    ]


def test_an_unknown_command_is_named() -> None:
    with pytest.raises(InputError) as refused:
        ironworks.run(["uup"])
    assert refused.value.where == "uup"


def test_a_wrong_option_is_status_2() -> None:
    assert command("status", "--nonsense").returncode == 2
