from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from registry.paths import StatePaths
from registry.store import Registry
from serving.settings import Settings
from tests.support.registered import add_version, promote, write_text_only_model
from tests.support.scripted_engine import Script
from tests.unit.serving.hub.world import MODEL, World

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


@pytest.fixture
def world(tmp_path, engine_command, script) -> Iterator[World]:
    paths = StatePaths(tmp_path / "state").create()
    settings = Settings(
        state=paths.root,
        model=MODEL,
        service="r1",
        device="cpu",
        drain_seconds=20,
        heartbeat_seconds=0.05,
    )
    with Registry.open(paths.registry) as registry:
        for version in ("v1", "v2"):
            folder = write_text_only_model(tmp_path / version, weights=version.encode() * 50)
            add_version(registry, folder, f"{MODEL}@{version}")
        promote(registry, f"{MODEL}@v1")
        yield World(settings, registry, engine_command, script)
