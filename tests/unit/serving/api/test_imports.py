from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_api_process_has_no_torch(repository: Path) -> None:
    program = (
        "import sys, serving.api.app, serving.telemetry.logging;"
        "heavy = {'torch', 'transformers', 'dagster', 'sqlalchemy'} & set(sys.modules);"
        "print(sorted(heavy))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=repository, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
