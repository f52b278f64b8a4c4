from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.support.scripted_engine import Script

SetScript = Callable[..., None]


@pytest.fixture
def script_file(tmp_path: Path) -> Path:
    """How scripted engines behave that start from now on."""
    file = tmp_path / "script.json"
    file.write_bytes(msgspec.json.encode(Script()))
    return file


@pytest.fixture
def script(script_file: Path) -> SetScript:
    def change(**fields: object) -> None:
        script_file.write_bytes(msgspec.json.encode(Script(**fields)))  # type: ignore[arg-type]

    return change


@pytest.fixture
def engine_command(script_file: Path) -> tuple[str, ...]:
    return (
        sys.executable,
        "-m",
        "tests.support.scripted_engine",
        "--script",
        str(script_file),
    )
