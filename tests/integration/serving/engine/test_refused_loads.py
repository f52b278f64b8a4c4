"""Loads that must be refused: the process says what is wrong, where and what to do, and ends."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from transformers import (
    BloomConfig,
    FalconConfig,
    Lfm2Config,
    MistralConfig,
    MixtralConfig,
    PreTrainedConfig,
)

from registry.errors import CheckpointError, InputError
from serving.engine.loading import ModelLoad
from serving.engine.messages import Load, LoadFailed
from tests.support.checkpoints import flip_byte
from tests.support.engine_peer import EnginePeer, load_request
from tests.support.tiny_models import SHAPE, save_tiny


def set_config(directory: Path, **changes: Any) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def flip_a_weight(directory: Path) -> None:
    flip_byte(sorted(directory.glob("*.safetensors"))[1])


def truncate_a_shard(directory: Path) -> None:
    shard = sorted(directory.glob("*.safetensors"))[0]
    shard.write_bytes(shard.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("damage", "code", "where"),
    [
        (flip_a_weight, "integrity", "model-00002"),
        (truncate_a_shard, "bad_checkpoint", "model-00001"),
        (lambda d: (d / "weights.pt").write_bytes(b"x"), "bad_checkpoint", "weights.pt"),
        (lambda d: set_config(d, auto_map={"AutoModel": "m.M"}), "bad_checkpoint", "config.json"),
    ],
    ids=["flipped bit", "truncated shard", "pickle", "auto_map"],
)
def test_a_damaged_or_unsafe_directory(
    peer: EnginePeer,
    tiny_model: Path,
    tmp_path: Path,
    damage: Callable[[Path], None],
    code: str,
    where: str,
) -> None:
    directory = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    request = load_request(directory)
    damage(directory)
    failed = peer.load(request)
    assert isinstance(failed, LoadFailed)
    assert failed.code == code and where in failed.where and failed.fix
    assert failed.phase in ("check", "read")
    assert peer.process.wait(30) == 2


def in_process(request: Load) -> None:
    load = ModelLoad(request, lambda _phase, _done, _total: None)
    load.verify()
    load.start()


def test_a_sliding_window_is_refused_and_not_ignored(tmp_path: Path) -> None:
    directory = save_tiny(MistralConfig(**SHAPE, sliding_window=16), tmp_path)
    with pytest.raises(CheckpointError, match="sliding_window"):
        in_process(load_request(directory))


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (BloomConfig(vocab_size=199, hidden_size=48, n_layer=2, n_head=4), "attention of its own"),
        (
            FalconConfig(
                vocab_size=199, hidden_size=48, num_hidden_layers=2, num_attention_heads=4
            ),
            "attention of its own",
        ),
        (MixtralConfig(**SHAPE, num_local_experts=4), "re-arranges its weights"),
        (Lfm2Config(**SHAPE, layer_types=["conv", "full_attention", "conv"]), "conv state"),
    ],
    ids=lambda value: getattr(value, "model_type", ""),
)
def test_an_architecture_that_the_hooks_do_not_carry_is_refused_with_the_reason(
    tmp_path: Path, config: PreTrainedConfig, why: str
) -> None:
    with pytest.raises(CheckpointError, match=why) as caught:
        in_process(load_request(save_tiny(config, tmp_path)))
    assert "can't be served" in caught.value.what


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"max_slots": 0}, "max_slots"),
        ({"max_batch_tokens": -1}, "max_batch_tokens"),
        ({"max_model_len": 1}, "max_model_len"),
        ({"threads": -3}, "threads"),
        ({"device": "gpu"}, "device"),
        ({"device": "meta"}, "device"),
        ({"dtype": "int3"}, "dtype"),
    ],
)
def test_a_setting_out_of_range_is_named(
    tiny_model: Path, change: dict[str, Any], field: str
) -> None:
    request = msgspec.structs.replace(load_request(tiny_model), **change)
    with pytest.raises(InputError) as caught:
        in_process(request)
    assert caught.value.where == field


@pytest.mark.parametrize("slots", [2**24, 2**40], ids=["overcommitted", "absurd"])
def test_a_pool_beyond_the_memory_says_what_to_lower(tiny_model: Path, slots: int) -> None:
    request = load_request(tiny_model, max_slots=slots)
    with pytest.raises(InputError, match="does not fit into memory"):
        in_process(request)


def test_the_context_is_never_longer_than_the_models(tiny_model: Path) -> None:
    for asked, given in ((0, 512), (100_000, 512), (64, 64)):
        load = ModelLoad(load_request(tiny_model, max_model_len=asked), lambda *_: None)
        load.verify()
        assert load.start()[1].max_model_len == given
