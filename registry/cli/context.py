"""What every command needs: the registry of this state folder, and who is asking."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from registry.paths import StatePaths
from registry.progress import Progress
from registry.store import Registry

ACTOR_VARIABLE = "IRONWORKS_ACTOR"


@contextmanager
def opened(*, create: bool = False) -> Iterator[Registry]:
    """Open the registry of the state folder.

    Raises:
        DatabaseError: there is none and ``create`` is false, or its schema differs.
    """
    with Registry.open(StatePaths.from_env().registry, create=create) as registry:
        yield registry


def actor() -> str:
    """Return who the log names: ``IRONWORKS_ACTOR``, else ``cli:user@host``."""
    try:
        user = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return os.environ.get(ACTOR_VARIABLE) or f"cli:{user}@{socket.gethostname()}"


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """Show bytes done on a terminal's stderr; nothing where there is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Bars(*columns, TimeRemainingColumn(), console=console) as bars:
        tasks = {}

        def show(label: str, done: int, total: int) -> None:
            if label not in tasks:
                tasks[label] = bars.add_task(label, total=total)
            bars.update(tasks[label], completed=done)

        yield show
