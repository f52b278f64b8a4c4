"""A dropped model becomes a promoted version, or a plain refusal. Real registry, real probe."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pytest

from tests.support.checkpoints import flip_byte
from tests.support.plant import Plant, failure_of, metadata_of
from tests.support.registered import add_version

GATES = {"integrity", "safe_files", "config_sanity", "loads_and_answers"}


def outcomes(plant: Plant, name: str = "tiny@v1") -> dict[str, str]:
    with plant.registry() as registry:
        return {gate.gate: gate.outcome for gate in registry.gates(name)}


def test_a_good_model_is_registered_gated_and_promoted(plant: Plant, tiny_checkpoint: Path) -> None:
    plant.drop(tiny_checkpoint)
    result = plant.run("intake_model")
    assert result.success
    assert outcomes(plant) == dict.fromkeys(GATES, "pass")
    with plant.registry() as registry:
        version = registry.version("tiny@v1")
        alias = registry.alias("tiny", "production")
        assert alias is not None and alias.digest == version.digest
        assert registry.check_integrity(version.digest) == []

    manifest = metadata_of(result, "model_manifest")
    assert manifest["digest"] == version.digest
    assert metadata_of(result, "registered_version")["x-model-version"] == version.short
    assert metadata_of(result, "promoted_version")["previous"] == "none"
    checks = {check.check_name: check for check in result.get_asset_check_evaluations()}
    assert set(checks) == GATES
    assert "capital of France" in str(checks["loads_and_answers"].metadata["answer"].value)

    again = plant.run("intake_model")
    assert again.success
    registered = metadata_of(again, "registered_version")
    assert (registered["new_blobs"], registered["digest"]) == (0, version.digest)
    assert metadata_of(again, "promoted_version")["moved"] is False
    with plant.registry() as registry:
        assert registry.alias("tiny", "production") == alias


def no_shard(directory: Path) -> str:
    (directory / "model.safetensors").unlink()
    return "model.safetensors"


def truncated_shard(directory: Path) -> str:
    file = directory / "model.safetensors"
    with file.open("r+b") as handle:
        handle.truncate(file.stat().st_size - 100)
    return "model.safetensors"


def pickle(directory: Path) -> str:
    (directory / "extra.pkl").write_bytes(b"\x80\x04.")
    return "extra.pkl"


def remote_code(directory: Path) -> str:
    config = json.loads((directory / "config.json").read_text())
    config["auto_map"] = {"AutoModel": "evil.Model"}
    (directory / "config.json").write_text(json.dumps(config))
    return "auto_map"


def link_out(directory: Path) -> str:
    (directory / "notes.txt").symlink_to("/etc/passwd")
    return "notes.txt"


@pytest.mark.parametrize("spoil", [no_shard, truncated_shard, pickle, remote_code, link_out])
def test_a_bad_directory_fails_in_plain_words(
    plant: Plant, tiny_checkpoint: Path, spoil: object
) -> None:
    named = spoil(plant.drop(tiny_checkpoint))  # type: ignore[operator]
    result = plant.run("intake_model")
    assert not result.success
    message = failure_of(result, "model_artifact")
    assert named in message
    assert "Traceback" not in message
    with plant.registry() as registry:
        assert registry.versions() == []


def test_a_version_that_is_not_there_is_said_to_be_missing(plant: Plant) -> None:
    result = plant.run("intake_model", "tiny@v9")
    assert "no directory for tiny@v9" in failure_of(result, "model_artifact")


def test_registration_alone_asks_for_the_manifest(plant: Plant, tiny_checkpoint: Path) -> None:
    plant.drop(tiny_checkpoint)
    result = plant.run("intake_model", only="registered_version")
    assert "materialise model_manifest first" in failure_of(result, "registered_version")


def test_a_wrong_tokenizer_stops_the_run_and_a_later_promotion_alone(
    plant: Plant, tiny_checkpoint: Path
) -> None:
    directory = plant.drop(tiny_checkpoint)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"vocab_size": 1000}))
    result = plant.run("intake_model")
    assert not result.success
    assert outcomes(plant)["config_sanity"] == "fail"
    assert result.asset_materializations_for_node("promoted_version") == []

    alone = plant.run("intake_model", only="promoted_version")
    assert not alone.success
    assert "config_sanity" in failure_of(alone, "promoted_version")
    with plant.registry() as registry:
        assert registry.alias("tiny", "production") is None


def test_promotion_is_refused_while_gates_are_missing(plant: Plant, tiny_checkpoint: Path) -> None:
    directory = plant.drop(tiny_checkpoint)
    with plant.registry() as registry:
        add_version(registry, directory, "tiny@v1")
    message = failure_of(plant.run("intake_model", only="promoted_version"), "promoted_version")
    assert all(gate in message for gate in GATES)


def test_a_file_changed_after_hashing_is_not_registered(
    plant: Plant, tiny_checkpoint: Path
) -> None:
    directory = plant.drop(tiny_checkpoint)
    assert plant.run("intake_model", only="model_manifest").success
    flip_byte(directory / "model.safetensors")
    result = plant.run("intake_model", only="registered_version")
    assert "model.safetensors" in failure_of(result, "registered_version")
    with plant.registry() as registry:
        assert registry.versions() == []


def test_other_files_under_a_registered_name_are_a_conflict(
    plant: Plant, tiny_checkpoint: Path
) -> None:
    directory = plant.drop(tiny_checkpoint)
    assert plant.run("intake_model", only="model_manifest").success
    assert plant.run("intake_model", only="registered_version").success
    flip_byte(directory / "model.safetensors")
    assert plant.run("intake_model", only="model_manifest").success
    result = plant.run("intake_model", only="registered_version")
    assert not result.success
    assert "tiny@v1" in failure_of(result, "registered_version")


def test_a_damaged_blob_fails_the_integrity_gate(plant: Plant, tiny_checkpoint: Path) -> None:
    plant.drop(tiny_checkpoint)
    assert plant.run("intake_model", only="model_manifest").success
    assert plant.run("intake_model", only="registered_version").success
    with plant.registry() as registry:
        view = registry.view("tiny@v1")
    flip_byte(view / "model.safetensors")
    check = plant.run("intake_model", only="registered_version_integrity")
    (evaluation,) = check.get_asset_check_evaluations()
    assert not evaluation.passed
    assert "model.safetensors" in str(evaluation.metadata["findings"].value)
    assert outcomes(plant) == {"integrity": "fail"}


def test_metadata_holds_tables_and_numbers_for_the_ui(plant: Plant, tiny_checkpoint: Path) -> None:
    plant.drop(tiny_checkpoint)
    result = plant.run("intake_model", only="model_artifact")
    (event,) = result.asset_materializations_for_node("model_artifact")
    table = event.metadata["files"]
    assert isinstance(table, dg.TableMetadataValue)
    assert {record.data["path"] for record in table.records} >= {"config.json", "tokenizer.json"}
    assert event.metadata["parameters"].value > 1_000_000
    assert event.metadata["architecture"].value == "LlamaForCausalLM"
