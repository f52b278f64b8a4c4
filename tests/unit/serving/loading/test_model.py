"""From bytes to a model: every tensor in its place, or a refusal that says why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

import serving.engine.attention as attention
from registry.errors import CheckpointError, InputError
from serving.loading.inventory import digests_of
from serving.loading.model import LoadedModel, build_model
from serving.loading.reading import CheckpointBytes, read_checkpoint
from tests.support.tiny_models import ARCHITECTURES, EOS, save_tiny

CPU = torch.device("cpu")
_directories: dict[str, Path] = {}


@pytest.fixture
def read(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], CheckpointBytes]:
    def reader(name: str) -> CheckpointBytes:
        if name not in _directories:
            directory = tmp_path_factory.mktemp(name)
            _directories[name] = save_tiny(ARCHITECTURES[name], directory)
        directory = _directories[name]
        return read_checkpoint(directory, digests_of(directory), CPU)

    return reader


def build(checkpoint: CheckpointBytes, dtype: str = "auto") -> LoadedModel:
    return build_model(checkpoint, device=CPU, dtype=dtype, attention=attention.NAME)


def changed_config(checkpoint: CheckpointBytes, **changes: Any) -> CheckpointBytes:
    config = json.loads(checkpoint.documents["config.json"]) | changes
    kept = {key: value for key, value in config.items() if value is not None}
    documents = checkpoint.documents | {"config.json": json.dumps(kept).encode()}
    return CheckpointBytes(checkpoint.files, checkpoint.tensors, documents)


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_the_state_is_that_of_from_pretrained(
    read: Callable[[str], CheckpointBytes], name: str
) -> None:
    loaded = build(read(name))
    expected = AutoModelForCausalLM.from_pretrained(_directories[name])
    ours, theirs = loaded.model.state_dict(), expected.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    buffers = dict(expected.named_buffers())  # also those that no file holds
    assert buffers.keys() == dict(loaded.model.named_buffers()).keys()
    assert all(torch.equal(b, buffers[key]) for key, b in loaded.model.named_buffers())
    everything = (*loaded.model.parameters(), *loaded.model.buffers())
    assert not any(tensor.is_meta for tensor in everything)
    assert not loaded.model.training
    assert loaded.eos_token_ids == (EOS,)
    assert loaded.parameters == sum(p.numel() for p in expected.parameters())


def test_tied_weights_are_one_tensor(read: Callable[[str], CheckpointBytes]) -> None:
    model = build(read("llama-tied")).model
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_weights_of_the_stored_dtype_are_not_copied(
    read: Callable[[str], CheckpointBytes],
) -> None:
    checkpoint = read("llama")
    address = checkpoint.tensors["lm_head.weight"].data_ptr()
    assert build(checkpoint).model.lm_head.weight.data_ptr() == address


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_the_dtype_asked_for(read: Callable[[str], CheckpointBytes], dtype: str) -> None:
    loaded = build(read("qwen3"), dtype)
    wanted = getattr(torch, dtype)
    assert loaded.dtype == dtype
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {wanted}
    assert loaded.weight_bytes == loaded.parameters * wanted.itemsize


def test_a_config_without_a_dtype_keeps_the_tensors_own(
    read: Callable[[str], CheckpointBytes],
) -> None:
    halved = read("llama")
    for name, tensor in halved.tensors.items():
        halved.tensors[name] = tensor.half()
    assert build(changed_config(halved, dtype=None)).dtype == "float16"


def test_a_rope_that_depends_on_the_batch_is_served_up_to_where_it_scales(
    read: Callable[[str], CheckpointBytes],
) -> None:
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}
    scaled = changed_config(
        read("llama"), rope_parameters=rope | {"original_max_position_embeddings": 128}
    )
    assert build(read("llama")).context_length == 512
    assert build(scaled).context_length == 128


def test_an_unknown_dtype_is_refused(read: Callable[[str], CheckpointBytes]) -> None:
    with pytest.raises(InputError) as caught:
        build(read("llama"), "int3")
    assert caught.value.where == "dtype" and "bfloat16" in caught.value.fix


def test_a_tied_pair_stored_twice_is_fine_when_equal_and_refused_when_not(
    read: Callable[[str], CheckpointBytes],
) -> None:
    twice = read("llama-tied")
    twice.tensors["lm_head.weight"] = twice.tensors["model.embed_tokens.weight"].clone()
    build(twice)
    lie = read("llama-tied")
    lie.tensors["lm_head.weight"] = lie.tensors["model.embed_tokens.weight"] + 1
    with pytest.raises(CheckpointError, match="differ"):
        build(lie)


def test_a_tied_pair_may_be_stored_under_its_other_name(
    read: Callable[[str], CheckpointBytes],
) -> None:
    checkpoint = read("llama-tied")
    stored = checkpoint.tensors.pop("model.embed_tokens.weight")
    checkpoint.tensors["lm_head.weight"] = stored
    assert torch.equal(build(checkpoint).model.model.embed_tokens.weight, stored)


def test_a_missing_and_a_surplus_tensor_are_named(
    read: Callable[[str], CheckpointBytes],
) -> None:
    missing = read("llama")
    del missing.tensors["model.norm.weight"]
    with pytest.raises(CheckpointError, match=r"no tensor model\.norm\.weight"):
        build(missing)
    surplus = read("llama")
    surplus.tensors["model.extra.weight"] = torch.zeros(1)
    with pytest.raises(CheckpointError, match=r"too many: model\.extra\.weight"):
        build(surplus)


def test_a_tensor_of_another_shape_is_named(read: Callable[[str], CheckpointBytes]) -> None:
    with pytest.raises(CheckpointError, match=r"\[199, 48\].*\[200, 48\]"):
        build(changed_config(read("llama"), vocab_size=200))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model_type": "no-such-model"}, "no-such-model"),
        ({"model_type": None}, "unknown"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "architectures"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantized"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "encoder-decoder"),
        ({"num_attention_heads": 0}, "can't make the model"),
        ({"hidden_size": "wide"}, "can't make the model"),
        ({"rope_parameters": {"rope_type": "no-such-rope"}}, "can't make the model"),
    ],
)
def test_a_config_that_cant_be_served_is_refused_with_a_reason(
    read: Callable[[str], CheckpointBytes], changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(CheckpointError) as caught:
        build(changed_config(read("llama"), **changes))
    assert why in caught.value.what and caught.value.where == "config.json"
