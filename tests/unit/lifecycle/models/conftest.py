from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from registry.paths import StatePaths
from tests.support.plant import Plant
from tests.support.ports import free_port
from tests.support.tiny_checkpoint import make_tiny_checkpoint


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory, demo_model_dir: Path) -> Path:
    return make_tiny_checkpoint(
        tmp_path_factory.mktemp("tiny") / "model", text_files_of=demo_model_dir
    )


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    paths = StatePaths(tmp_path / "state").create()
    with dg.DagsterInstance.ephemeral() as instance:
        yield Plant(paths, free_port(), instance)
