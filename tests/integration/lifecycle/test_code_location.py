"""The code location loads as Dagster loads it, without the heavy libraries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_dagster_validates_the_workspace(repository: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "dagster"),
            *("definitions", "validate", "-w", "workspace.yaml"),
        ],
        cwd=repository,
        env={**os.environ, "IRONWORKS_STATE": str(tmp_path), "DAGSTER_HOME": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "Validation successful" in done.stdout + done.stderr


def test_a_run_worker_does_not_import_torch(repository: Path, tmp_path: Path) -> None:
    code = (
        "import sys, lifecycle.definitions;"
        "print(sorted({'torch', 'transformers', 'pandas', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error::dagster.PreviewWarning", "-c", code],
        cwd=repository,
        env={**os.environ, "IRONWORKS_STATE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "[]\n", done.stderr
    assert not any(tmp_path.iterdir()), "loading the definitions must not touch the state"
