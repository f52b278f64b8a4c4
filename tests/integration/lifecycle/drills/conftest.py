from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tiny_checkpoint import make_tiny_checkpoint


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory, demo_model_dir: Path) -> Path:
    return make_tiny_checkpoint(
        tmp_path_factory.mktemp("drill") / "model", text_files_of=demo_model_dir
    )
