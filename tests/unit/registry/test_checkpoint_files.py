from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from registry.checkpoint_files import INDEX, check_checkpoint, check_config, is_complete
from registry.errors import CheckpointError
from tests.support.plain_checkpoint import (
    SHARDS,
    raw_file,
    shard_bytes,
    write_config,
    write_tokenizer,
)


def test_facts_of_a_good_checkpoint(checkpoint: Path) -> None:
    facts = check_checkpoint(checkpoint)
    assert facts.shards == SHARDS
    assert (facts.tensors, facts.parameters, facts.dtype) == (5, 128 + 64 + 32 + 64 + 8, "BF16")
    assert (facts.architecture, facts.vocab_size, facts.context_length) == (
        "LlamaForCausalLM",
        16,
        64,
    )
    assert facts.has_chat_template
    assert check_config(checkpoint) == []
    assert is_complete(checkpoint) is None


def test_the_demo_model_passes_every_check(demo_model_dir: Path) -> None:
    facts = check_checkpoint(demo_model_dir)
    assert (len(facts.shards), facts.parameters, facts.layers) == (3, 134_515_008, 30)
    assert check_config(demo_model_dir) == []
    assert is_complete(demo_model_dir) is None


def _index(directory: Path, change: Callable[[dict[str, str]], object]) -> None:
    index = json.loads((directory / INDEX).read_text())
    change(index["weight_map"])
    (directory / INDEX).write_text(json.dumps(index))


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _executable(path: Path) -> None:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


BREAKAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing shard": (lambda d: (d / SHARDS[1]).unlink(), SHARDS[1]),
    "truncated shard": (lambda d: _truncate(d / SHARDS[0]), SHARDS[0]),
    "duplicate key": (lambda d: (d / SHARDS[0]).write_bytes(raw_file(b'{"a":1,"a":1}')), SHARDS[0]),
    "pickle": (lambda d: (d / "pytorch_model.bin").write_bytes(b"x"), "pytorch_model.bin"),
    "pickle in a folder": (
        lambda d: ((d / "sub").mkdir(), (d / "sub" / "a.PT").write_bytes(b"x")),
        "sub/a.PT",
    ),
    "code": (lambda d: (d / "modeling_x.py").write_text("1"), "modeling_x.py"),
    "executable": (lambda d: _executable(d / "setup"), "setup"),
    "hidden": (lambda d: (d / ".env").write_text("x"), ".env"),
    "hidden folder": (lambda d: (d / ".git").mkdir(), ".git"),
    "unknown kind": (lambda d: (d / "a.xyz").write_text("x"), "a.xyz"),
    "other weights": (lambda d: (d / "model.h5").write_text("x"), "model.h5"),
    "link out": (lambda d: (d / "notes.txt").symlink_to("/etc/passwd"), "notes.txt"),
    "dangling link": (lambda d: (d / "notes.txt").symlink_to("nowhere"), "notes.txt"),
    "linked folder": (lambda d: (d / "sub").symlink_to("/etc"), "sub"),
    "fifo": (lambda d: os.mkfifo(d / "notes.txt"), "notes.txt"),
    "auto_map": (lambda d: write_config(d, auto_map={"AutoModel": "m.M"}), "config.json: auto_map"),
    "deep auto_map": (
        lambda d: write_config(d, vision=[{"deep": {"auto_map": 1}}]),
        "config.json: vision[0].deep.auto_map",
    ),
    "trust_remote_code": (
        lambda d: write_config(d, trust_remote_code=False),
        "config.json: trust_remote_code",
    ),
    "attention by name": (
        lambda d: write_config(d, _attn_implementation_internal="x/y"),
        "config.json: _attn_implementation_internal",
    ),
    "config twice": (
        lambda d: (d / "config.json").write_text('{"a":1,"a":2}'),
        "config.json",
    ),
    "no architecture": (lambda d: write_config(d, architectures=None), "config.json"),
    "index climbs out": (lambda d: _index(d, lambda m: m.update(x="../x.safetensors")), INDEX),
    "index is absolute": (lambda d: _index(d, lambda m: m.update(x="/x.safetensors")), INDEX),
    "index names a pickle": (lambda d: _index(d, lambda m: m.update(x="x.bin")), INDEX),
    "index promises more": (lambda d: _index(d, lambda m: m.update(x=SHARDS[0])), SHARDS[0]),
    "index forgets a tensor": (
        lambda d: _index(d, lambda m: m.pop("model.norm.weight")),
        SHARDS[1],
    ),
    "stray shard": (
        lambda d: (d / "model.safetensors").write_bytes(shard_bytes({"a": [1]})),
        "model.safetensors",
    ),
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_bad_checkpoint_is_refused_by_the_name_of_the_bad_file(
    checkpoint: Path, name: str
) -> None:
    breakage, where = BREAKAGES[name]
    breakage(checkpoint)
    with pytest.raises(CheckpointError) as caught:
        check_checkpoint(checkpoint)
    assert caught.value.where == where


def test_a_link_inside_the_directory_is_allowed(checkpoint: Path) -> None:
    (checkpoint / "README.md").symlink_to("tokenizer.json")
    assert "README.md" in check_checkpoint(checkpoint).files


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"vocab_size": 17}, "vocab_size"),
        ({"vocab_size": 15}, "wrong tokenizer: its highest id is 15"),
        ({"num_hidden_layers": 3}, "no tensor is of layer 2"),
        ({"num_hidden_layers": 1}, "tensors of layer 1"),
        ({"num_attention_heads": 3}, "does not divide hidden_size"),
        ({"num_attention_heads": 4, "num_key_value_heads": 3}, "num_key_value_heads 3"),
        ({"num_key_value_heads": 2}, "k_proj"),
        ({"head_dim": 16}, "q_proj"),
        ({"tie_word_embeddings": False}, "no lm_head.weight"),
        ({"eos_token_id": [2, 99]}, "eos_token_id 99"),
        ({"hidden_size": "8"}, "hidden_size is not a positive integer"),
    ],
)
def test_a_config_that_does_not_fit_its_files_is_found(
    checkpoint: Path, changes: dict[str, object], says: str
) -> None:
    write_config(checkpoint, **changes)
    assert any(says in str(finding) for finding in check_config(checkpoint))


def test_the_wrong_or_missing_tokenizer_is_found(checkpoint: Path) -> None:
    write_tokenizer(checkpoint, tokens=40)
    (finding,) = check_config(checkpoint)
    assert finding.file == "tokenizer.json" and "highest id is 39" in finding.what
    (checkpoint / "tokenizer.json").unlink()
    (finding,) = check_config(checkpoint)
    assert "missing" in finding.what


def test_copying_a_checkpoint_is_incomplete_until_its_last_byte(
    checkpoint: Path, tmp_path: Path
) -> None:
    target = tmp_path / "drop"
    target.mkdir()
    assert "config.json is not there yet" in str(is_complete(target))
    # Nothing tells that this optional file is still to come, so it comes first.
    names = {path.name for path in checkpoint.iterdir()} - {"tokenizer_config.json"}
    for name in ("tokenizer_config.json", *sorted(names)):
        source = checkpoint / name
        data = source.read_bytes()
        for end in (len(data) // 2, len(data)):
            assert is_complete(target) is not None
            (target / source.name).write_bytes(data[:end])
    assert is_complete(target) is None


@pytest.mark.parametrize("name", ["model.safetensors.part", ".model.safetensors.aB3xYz", "a.tmp"])
def test_a_file_that_a_tool_is_still_writing_means_incomplete(checkpoint: Path, name: str) -> None:
    (checkpoint / name).write_bytes(b"")
    assert name in str(is_complete(checkpoint))


@pytest.mark.parametrize("name", ["pickle", "duplicate key", "auto_map", "stray shard"])
def test_a_whole_but_unsafe_checkpoint_is_complete_so_that_the_gates_refuse_it(
    checkpoint: Path, name: str
) -> None:
    BREAKAGES[name][0](checkpoint)
    assert is_complete(checkpoint) is None
