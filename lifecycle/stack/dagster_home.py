"""DAGSTER_HOME of a state folder: instance settings, workspace, and a first schema."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from lifecycle.stack.settings import REPOSITORY, StackSettings

LOCATION = "ironworks"

_ENVIRONMENT = "environment.json"


def prepare(settings: StackSettings) -> Path:
    """Write what the three Dagster processes read; safe to call again.

    Returns:
        The workspace file.
    """
    home = settings.paths.dagster
    home.mkdir(parents=True, exist_ok=True)
    fresh = not (home / "dagster.yaml").exists()
    shutil.copyfile(REPOSITORY / "lifecycle" / "dagster.yaml", home / "dagster.yaml")
    workspace = home / "workspace.yaml"
    workspace.write_text(
        "# Written by `make up`: one code server, shared by the daemon and the web server.\n"
        "load_from:\n"
        f"  - grpc_server: {{socket: {code_server_socket(settings)}, location_name: {LOCATION}}}\n"
    )
    (home / _ENVIRONMENT).write_text(json.dumps(settings.environment, indent=1) + "\n")
    if fresh:
        _create_schema(home)
    return workspace


def read_environment(settings: StackSettings) -> dict[str, str]:
    """The variables with which the processes were started last; {} before the first start."""
    try:
        recorded = json.loads((settings.paths.dagster / _ENVIRONMENT).read_text())
    except FileNotFoundError:
        return {}
    return {str(name): str(value) for name, value in recorded.items()}


def code_server_socket(settings: StackSettings) -> Path:
    """Unix socket on which the code server answers."""
    return settings.paths.socket("dagster-code")


def _create_schema(home: Path) -> None:
    """Make the event log's tables now: three processes that find none would race to make them."""
    from dagster import DagsterInstance

    with DagsterInstance.from_config(str(home)) as instance:
        instance.get_run_records(limit=1)
