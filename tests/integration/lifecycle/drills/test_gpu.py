"""A broken GPU driver under the whole product; every other fault is tried in the benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.drills import gpu
from benchmarks.drills.gpu import GpuStack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def on(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Iterator[GpuStack]:
    if reason := gpu.absent():
        pytest.skip(reason)
    with gpu.gpu_stack(tmp_path_factory.mktemp("gpu"), tiny_checkpoint) as stack:
        yield stack


def test_a_lost_gpu_that_no_reset_helps_is_back_after_a_reload(on: GpuStack) -> None:
    seen = gpu.gpu_lost_needs_reload(on)
    rungs = seen["rungs"]
    assert isinstance(rungs, dict)
    assert (rungs["reset_gpu"], rungs["reload_driver"]) == ("failed", "done")
    assert seen["recovery_runs"] == 1
    # Both are exported, and the driver comes first.
    driver, serving = (
        seen["exported_driver_recovered_seconds"],
        seen["exported_serving_again_seconds"],
    )
    assert isinstance(driver, float) and isinstance(serving, float)
    assert driver <= serving


def test_a_gpu_that_somebody_else_holds_is_escalated_once(on: GpuStack) -> None:
    seen = gpu.foreign_holder(on)
    assert seen["recovery_runs"] == 1
    assert seen["in_rotation"] == 0
    assert "4242" in str(seen["alert"])
    assert seen["tools_called"] == [], "nothing may be taken away under a running process"
