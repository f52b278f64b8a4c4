from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lifecycle.fleet.managed import ManagedFleet
from registry.paths import StatePaths
from registry.store import Registry
from tests.support.fleet import SMALL, end_fleet, make_fleet
from tests.support.registered import add_version, promote
from tests.support.tiny_checkpoint import make_tiny_checkpoint


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


@pytest.fixture(scope="module")
def declared(
    tmp_path_factory: pytest.TempPathFactory, tiny_checkpoints: tuple[Path, Path]
) -> Iterator[Callable[..., ManagedFleet]]:
    """Makes a fleet: two replicas and a proxy, tiny@v1 in production, nothing started."""
    fleets: list[ManagedFleet] = []
    with pytest.MonkeyPatch.context() as environment:

        def make(**settings: str) -> ManagedFleet:
            for name, value in {**SMALL, **settings}.items():
                environment.setenv(name, value)
            paths = StatePaths(tmp_path_factory.mktemp("state")).create()
            with Registry.open(paths.registry) as registry:
                for name, source in zip(("tiny@v1", "tiny@v2"), tiny_checkpoints, strict=True):
                    add_version(registry, source, name)
                promote(registry, "tiny@v1")
            fleets.append(make_fleet(paths))
            fleets[-1].declare("tiny", "production", actor="test", reason="a test needs it")
            return fleets[-1]

        yield make
        for fleet in fleets:
            end_fleet(fleet)


@pytest.fixture(scope="module")
def fleet(declared: Callable[..., ManagedFleet]) -> ManagedFleet:
    """The same, up and in rotation; shared by the tests of a module, in their order."""
    fleet = declared()
    fleet.reconcile(deadline_seconds=120).require_settled()
    return fleet
