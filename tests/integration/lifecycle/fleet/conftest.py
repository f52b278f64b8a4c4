from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lifecycle.fleet.managed import ManagedFleet
from registry.paths import StatePaths
from registry.store import Registry
from tests.support.fleet import SMALL, end_fleet, make_fleet
from tests.support.registered import add_version, promote
from tests.support.tiny_checkpoint import make_tiny_checkpoint


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SMALL.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def tiny_checkpoints(
    tmp_path_factory: pytest.TempPathFactory, demo_model_dir: Path
) -> tuple[Path, Path]:
    """Two versions of a tiny model."""
    folder = tmp_path_factory.mktemp("tiny")
    first, second = (
        make_tiny_checkpoint(folder / f"v{seed}", text_files_of=demo_model_dir, seed=seed)
        for seed in (1, 2)
    )
    return first, second


@pytest.fixture
def paths(tmp_path: Path, tiny_checkpoints: tuple[Path, Path]) -> StatePaths:
    """A state folder with tiny@v1 in production and tiny@v2 registered."""
    paths = StatePaths(tmp_path / "state").create()
    with Registry.open(paths.registry) as registry:
        for name, checkpoint in zip(("tiny@v1", "tiny@v2"), tiny_checkpoints, strict=True):
            add_version(registry, checkpoint, name)
        promote(registry, "tiny@v1")
    return paths


@pytest.fixture
def fleet(paths: StatePaths) -> Iterator[ManagedFleet]:
    """Two replicas and a proxy, declared and not started."""
    fleet = make_fleet(paths)
    fleet.declare("tiny", "production", actor="test", reason="a test needs it")
    yield fleet
    end_fleet(fleet)
