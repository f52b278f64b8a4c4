"""From fresh state to an audited answer, and what breaks on the way: one story, in order.

Real processes, real model, real Dagster daemon. Each test goes on from the state that
the one before it left, so a failure makes those after it fail too.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest

from registry.errors import IronworksError
from tests.e2e.conftest import MODEL, Stack
from tests.support.checkpoints import flip_byte, perturbed_copy

pytestmark = pytest.mark.timeout(600)

PERTURBED_TENSOR = "model.layers.29.mlp.down_proj.weight"

MATERIALIZATIONS = """
query Materializations($partition: [String!]) {
  assetNodes {
    assetKey { path }
    assetMaterializations(partitions: $partition) {
      metadataEntries { label __typename ... on TextMetadataEntry { text } }
    }
  }
}
"""


def wait_until(look: Callable[[], object], what: str, seconds: float = 240) -> None:
    """Return once ``look`` answers something true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if look():
            return
        time.sleep(0.5)
    raise AssertionError(f"{what} did not happen within {seconds} s")


def served_version(stack: Stack) -> str:
    return str(stack.chat("Say hello.", max_tokens=4).headers["x-model-version"])


def shown(stack: Stack, version: str) -> dict[str, Any]:
    """One version of the model as the registry shows it."""
    found: dict[str, Any] = stack.json("registry", "show", f"{MODEL}@{version}")["version"]
    return found


def production(stack: Stack) -> str:
    """Digest of the version in production."""
    aliases = stack.json("registry", "list")["aliases"]
    [alias] = [alias for alias in aliases if alias["alias"] == "production"]
    return str(alias["digest"])


def short(stack: Stack, version: str) -> str:
    """The digest as answers carry it."""
    return str(shown(stack, version)["digest"])[:12]


def files(stack: Stack, version: str) -> dict[str, str]:
    """Path and sha256 of each file of a version."""
    return {file["path"]: file["sha256"] for file in shown(stack, version)["manifest"]["files"]}


def verified_head(stack: Stack) -> dict[str, Any]:
    verdict = stack.json("audit", "verify")
    assert verdict["ok"]
    head: dict[str, Any] = verdict["verification"]["head"]
    return head


def live_versions(stack: Stack, at: str) -> list[tuple[str, str]]:
    """(version, certainty) that the audit log gives for the replica at a time."""
    answer = stack.json("audit", "as-of", "--at", at, "--service", stack.service)
    return [(row["version"], row["certainty"]) for row in answer["rows"]]


def load_events(stack: Stack) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = stack.json("audit", "timeline")["events"]
    return [event for event in events if event["kind"].startswith("load.")]


def test_up_prints_an_answer_and_the_addresses(stack: Stack) -> None:
    output = stack.up()
    assert "Paris" in output
    assert f"http://127.0.0.1:{stack.dagster_port}" in output
    assert f"http://127.0.0.1:{stack.port}" in output
    assert "audit" in output


def test_the_model_answers_sensibly(stack: Stack) -> None:
    response = stack.chat("What is the capital of France?")
    assert response.status_code == 200
    body = response.json()
    assert "Paris" in body["choices"][0]["message"]["content"]
    assert body["usage"]["completion_tokens"] > 3
    assert response.headers["x-model-version"] == short(stack, "v1")
    assert short(stack, "v1") in body["system_fingerprint"]


def test_dagster_shows_every_asset_materialised_for_the_version(stack: Stack) -> None:
    nodes = stack.graphql(MATERIALIZATIONS, partition=[f"{MODEL}@v1"])["assetNodes"]
    found = {node["assetKey"]["path"][-1]: node["assetMaterializations"] for node in nodes}
    wanted = {
        "model_artifact",
        "model_manifest",
        "registered_version",
        "promoted_version",
        "deployed_version",
    }
    assert wanted <= found.keys()
    for asset in wanted:
        assert found[asset], f"{asset} was not materialised"
    text = json.dumps(found)
    assert shown(stack, "v1")["digest"] in text


def test_the_gates_are_on_record(stack: Stack) -> None:
    gates = stack.json("registry", "gates", f"{MODEL}@v1")["gates"]
    passed = {gate["gate"] for gate in gates if gate["outcome"] == "pass"}
    assert passed >= {"integrity", "safe_files", "config_sanity", "loads_and_answers"}


def test_the_official_client_streams_a_completion(stack: Stack) -> None:
    client = openai.OpenAI(base_url=f"{stack.api}/v1", api_key="none", max_retries=0)
    chunks = list(
        client.completions.create(
            model=MODEL,
            prompt="The capital of Italy is",
            max_tokens=16,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
    assert "Rome" in text
    assert len([chunk for chunk in chunks if chunk.choices]) > 3
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 16
    assert [model.id for model in client.models.list()] == [MODEL]


def test_a_second_up_changes_nothing(stack: Stack) -> None:
    before = stack.pids(), verified_head(stack)
    stack.up()
    assert (stack.pids(), verified_head(stack)) == before


def test_a_port_in_use_is_a_plain_error(stack: Stack, tmp_path: Path) -> None:
    other = stack.ironworks("up", "--state", str(tmp_path / "other"))
    assert other.returncode == 2
    assert str(stack.port) in other.stderr or str(stack.dagster_port) in other.stderr
    assert "Traceback" not in other.stderr


def test_a_second_version_takes_over_without_a_failed_request(
    stack: Stack, demo_model_dir: Path, tmp_path: Path
) -> None:
    perturbed_copy(demo_model_dir, tmp_path / "v2", tensor=PERTURBED_TENSOR)
    first = short(stack, "v1")
    seen: list[tuple[int, str]] = []
    stop = threading.Event()

    def client() -> None:
        while not stop.is_set():
            try:
                response = stack.chat("Name a colour.", max_tokens=8)
                seen.append((response.status_code, response.headers.get("x-model-version", "")))
            except httpx.HTTPError as error:
                seen.append((0, repr(error)))

    clients = [threading.Thread(target=client) for _ in range(2)]
    for thread in clients:
        thread.start()
    try:
        before = time.time()
        stack.drop(tmp_path / "v2", "v2")
        wait_until(
            lambda: any(version != first for _, version in seen[-4:]), "the change of version", 400
        )
        time.sleep(3)  # requests that began on the old version end, and new ones follow
    finally:
        stop.set()
        for thread in clients:
            thread.join()
    failed = [entry for entry in seen if entry[0] != 200]
    assert not failed, f"{len(failed)} of {len(seen)} requests failed: {failed[:3]}"
    assert {version for _, version in seen} == {first, short(stack, "v2")}
    assert production(stack) == shown(stack, "v2")["digest"]
    assert live_versions(stack, str(before)) == [(f"{MODEL}@v1", "exact")]
    after = str(time.time())
    # A lease proves the time up to its last renewal, every 10 s.
    wait_until(
        lambda: live_versions(stack, after) == [(f"{MODEL}@v2", "exact")], "a renewed lease", 60
    )


def test_rollback_is_one_command_and_on_record(stack: Stack) -> None:
    stack.ok("registry", "rollback", MODEL, "--alias", "production", "--reason", "a test")
    wait_until(lambda: served_version(stack) == short(stack, "v1"), "the rollback")
    assert production(stack) == shown(stack, "v1")["digest"]
    kinds = [event["kind"] for event in stack.json("audit", "timeline")["events"]]
    assert "alias.rolled_back" in kinds


def test_a_killed_engine_is_a_clear_error_and_comes_back_by_itself(stack: Stack) -> None:
    victim = stack.engine_pid()
    answers: list[httpx.Response] = []
    waiting = threading.Thread(
        target=lambda: answers.append(stack.chat("Tell me a long story.", max_tokens=1500))
    )
    waiting.start()
    time.sleep(2)
    os.kill(victim, signal.SIGKILL)
    waiting.join()
    [answer] = answers
    assert answer.status_code in (500, 502, 503)
    error = answer.json()["error"]
    assert error["message"] and error["type"] and error["code"]
    assert httpx.get(f"{stack.api}/livez").status_code == 200

    wait_until(lambda: stack.chat("Say hello.").status_code == 200, "the engine's return", 120)
    assert stack.engine_pid() != victim
    assert served_version(stack) == short(stack, "v1")
    died = [event for event in load_events(stack) if event["kind"] == "load.failed"]
    assert any("SIGKILL" in json.dumps(event["body"]) for event in died)
    assert load_events(stack)[-1]["kind"] == "load.ready"


def test_one_flipped_byte_stops_the_next_load_and_not_the_service(
    stack: Stack, demo_model_dir: Path
) -> None:
    v1, v2 = files(stack, "v1"), files(stack, "v2")
    [(path, digest)] = [(path, digest) for path, digest in v2.items() if v1[path] != digest]
    flip_byte(stack.state / "registry" / "blobs" / "sha256" / digest[:2] / digest)

    with stack.replica() as replica, pytest.raises(IronworksError) as refusal:
        replica.swap(f"{MODEL}@v2")
    assert path in str(refusal.value) or digest in str(refusal.value)

    last = load_events(stack)[-1]
    assert last["kind"] == "load.failed"
    assert path in json.dumps(last["body"]) or digest in json.dumps(last["body"])
    answer = stack.chat("What is the capital of France?")
    assert answer.status_code == 200
    assert answer.headers["x-model-version"] == short(stack, "v1")

    forward = stack.ironworks("registry", "promote", f"{MODEL}@v2", "--alias", "production")
    assert forward.returncode == 2, "damaged bytes must not be promoted"
    assert path in forward.stderr or digest in forward.stderr
    assert production(stack) == shown(stack, "v1")["digest"]


def test_the_log_refuses_edits_and_shows_those_that_are_forced(stack: Stack) -> None:
    database = stack.state / "registry" / "registry.db"

    def sqlite(statement: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sqlite3", "-bail", str(database), ".timeout 10000", statement],
            capture_output=True,
            text=True,
            timeout=60,
        )

    assert stack.ironworks("audit", "verify").returncode == 0
    edit = "UPDATE audit_event SET actor = 'nobody' WHERE seq = 2;"
    refused = sqlite(edit)
    assert refused.returncode != 0
    assert "audit" in refused.stderr
    assert stack.ironworks("audit", "verify").returncode == 0

    with sqlite3.connect(database) as connection:
        triggers = [
            name
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'audit_event'"
            )
        ]
    connection.close()
    assert triggers
    dropped = "".join(f"DROP TRIGGER {name};" for name in triggers)
    forced = sqlite(dropped + edit)
    assert forced.returncode == 0, forced.stderr
    verdict = stack.ironworks("audit", "verify")
    assert verdict.returncode == 1
    assert "row 2" in verdict.stdout
    assert stack.json_whatever_its_status("audit", "verify")["verification"]["bad_seq"] == 2


def test_down_stops_everything_it_started_and_nothing_else(stack: Stack) -> None:
    pids = {*stack.pids().values(), stack.engine_pid()}
    bystander = subprocess.Popen(["sleep", "300"])
    try:
        stack.ok("down")
        wait_until(
            lambda: not any(psutil.pid_exists(pid) for pid in pids), "the end of all processes", 60
        )
        assert bystander.poll() is None
        assert stack.pids() == {}
    finally:
        bystander.kill()
        bystander.wait()
