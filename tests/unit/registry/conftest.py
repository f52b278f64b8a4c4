from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from registry.loads import LoadIdentity
from registry.store import Registry, Version
from tests.support.plain_checkpoint import write_checkpoint
from tests.support.registered import add_version


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A tiny checkpoint that passes every check."""
    return write_checkpoint(tmp_path / "checkpoint")


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with Registry.open(tmp_path / "registry") as opened:
        yield opened


@pytest.fixture
def add(registry: Registry, tmp_path: Path) -> Callable[[str], Version]:
    """Registers a version of the given name, each with weights of its own."""
    fills = iter(range(2, 250))

    def make(name: str) -> Version:
        return add_version(registry, write_checkpoint(tmp_path / name, fill=next(fills)), name)

    return make


@pytest.fixture
def identity() -> LoadIdentity:
    return LoadIdentity(
        service="replica-8000",
        model="tiny",
        alias="production",
        host="host-a",
        boot_id="boot-1",
        pid=100,
        process_start_us=1,
        engine_version="0.1.0",
        torch_version="2.13.0",
        transformers_version="5.24.0",
        git_commit="c0ffee",
        git_dirty=False,
        device="cpu",
        dtype="bfloat16",
        config_digest="0" * 64,
        verification="sha256 on read",
        api_pid=99,
    )
