"""Faults that a replica and the record survive by themselves, with no Dagster running."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.drills import disk
from benchmarks.drills.engine import kill_engine
from benchmarks.drills.world import make_world


@pytest.mark.slow
def test_a_killed_engine_comes_back_by_itself_under_load(
    tmp_path: Path, tiny_checkpoint: Path
) -> None:
    seen = kill_engine(make_world(tmp_path, tiny_checkpoint))
    assert seen["answered_later"]
    assert seen["versions"] == 1
    assert seen["events"] == ["load.failed", "load.started", "load.verified", "load.ready"]


@pytest.mark.slow
def test_a_full_disk_refuses_changes_and_fails_no_request(
    tmp_path: Path, tiny_checkpoint: Path
) -> None:
    if reason := disk.absent():
        pytest.skip(reason)
    seen = disk.full_disk(tmp_path, tiny_checkpoint)
    assert seen["failed_requests"] == 0, seen["failures"]
    refusals = seen["refusals"]
    assert isinstance(refusals, dict)
    for action in ("promote", "swap"):
        assert "full" in refusals[action] and "free space" in refusals[action], action
    # Nothing half-written: what was refused is not on record, and what came after is.
    assert seen["events_while_full"] == []
    assert seen["events_after"] == [
        *("alias.moved", "load.started", "load.verified", "load.ready"),
        *("load.retired", "load.unloaded", "load.unloaded"),
    ]
    assert seen["log_is_whole"]
