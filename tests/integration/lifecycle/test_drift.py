"""Drift and canary on a real replica: requests in, verdicts on record, changed weights caught."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dagster as dg
import httpx
import pytest

from lifecycle.drift.assets import judge_canary
from registry.fleet import DesiredReplica
from registry.paths import StatePaths
from registry.store import Registry
from tests.support.plant import Plant, metadata_of
from tests.support.registered import add_version, promote
from tests.support.replica import Replica, running_replica
from tests.support.tiny_checkpoint import make_tiny_checkpoint

pytestmark = pytest.mark.slow

MODEL = "tiny"


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory, demo_model_dir: Path) -> Iterator[Replica]:
    folder = tmp_path_factory.mktemp("drift")
    paths = StatePaths(folder / "var").create()
    with Registry.open(paths.registry) as registry:
        for seed in (1, 2):
            model = make_tiny_checkpoint(
                folder / f"v{seed}", text_files_of=demo_model_dir, seed=seed
            )
            add_version(registry, model, f"{MODEL}@v{seed}")
        promote(registry, f"{MODEL}@v1")
    with running_replica(paths.root, MODEL, max_model_len=256) as started:
        port = httpx.URL(started.url).port or 0
        with Registry.open(paths.registry) as registry:
            desired = DesiredReplica(started.service, "127.0.0.1", port, MODEL)
            registry.fleet.set(desired, actor="test", reason="a test needs it")
        yield started


@pytest.fixture
def plant(replica: Replica) -> Iterator[Plant]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Plant(StatePaths(replica.state), 0, instance)


def ask(replica: Replica, prompt: str, requests: int) -> None:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": 2,
    }

    def one(_: int) -> None:
        response = httpx.post(f"{replica.url}/v1/chat/completions", json=body, timeout=60)
        assert response.status_code == 200, response.text

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(one, range(requests)))


def run(plant: Plant, job: str, asset: str, config: dict[str, Any]) -> dict[str, object]:
    result = plant.defs.resolve_job_def(job).execute_in_process(
        instance=plant.instance,
        run_config={"ops": {asset: {"config": config}}} if config else None,
    )
    assert result.success
    return metadata_of(result, asset)


def test_a_change_of_traffic_reaches_the_page_and_the_log(replica: Replica, plant: Plant) -> None:
    sizes = {"judged_requests": 100, "reference_requests": 200}
    ask(replica, "hi", 200)
    first = run(plant, "watch_drift", "drift_report", sizes)
    assert first["verdict"] == "insufficient_data"
    ask(replica, "Как дела у сервера сегодня, и что с диском? " * 3, 200)
    then = run(plant, "watch_drift", "drift_report", sizes)
    assert then["verdict"] == "alarm"
    assert "](data:image/png" in str(then["histograms"])
    with plant.registry() as registry:
        kinds = [e for e in registry.audit.events() if e.kind.startswith("drift.")]
        assert [e.kind for e in kinds] == ["drift.frozen", "drift.verdict", "drift.verdict"]
        assert {"prompt_tokens", "prompt_script"} <= set(kinds[-1].body["signals"])


def test_the_canary_freezes_agrees_and_catches_other_weights(
    replica: Replica, plant: Plant
) -> None:
    with replica.client() as client:
        before = client.sketches()
    first = run(plant, "ask_canary", "canary_report", {})
    assert str(first["verdicts"]).count("frozen") == 1
    again = run(plant, "ask_canary", "canary_report", {})
    assert again["alarms"] == 0 and ": ok" not in str(first["verdicts"])
    with replica.client() as client:
        assert client.sketches() == before, "the canary is no traffic"
        # Weights that change under a running engine: other bytes, the digest it loaded.
        client.swap(f"{MODEL}@v2")
        from lifecycle.drift import canary

        answer = client.canary(
            MODEL, canary.PROMPTS, max_tokens=canary.MAX_TOKENS, at_once=4, timeout=60
        )
        with plant.registry() as registry:
            answer["digest"] = registry.version(f"{MODEL}@v1").digest
            verdict = judge_canary(registry, replica.service, answer, lambda _: answer, "test")
            events = [e.body for e in registry.audit.events() if e.kind == "canary.verdict"]
    assert verdict.outcome == "alarm"
    assert [body["outcome"] for body in events] == ["frozen", "ok", "alarm"]
