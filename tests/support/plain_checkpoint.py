"""Tiny checkpoints written byte by byte, so that any rule of the format can be broken."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VOCAB, HIDDEN, HEADS, KV_HEADS, LAYERS = 16, 8, 2, 1, 2

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
    "eos_token_id": 2,
}

SHAPES: dict[str, list[int]] = {
    "model.embed_tokens.weight": [VOCAB, HIDDEN],
    "model.layers.0.self_attn.q_proj.weight": [HIDDEN, HIDDEN],
    "model.layers.0.self_attn.k_proj.weight": [HIDDEN // 2, HIDDEN],
    "model.layers.1.self_attn.q_proj.weight": [HIDDEN, HIDDEN],
    "model.norm.weight": [HIDDEN],
}
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def raw_file(header: bytes | Mapping[str, Any], data: bytes = b"") -> bytes:
    """The bytes of a safetensors file with this header, right or wrong."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def shard_bytes(shapes: Mapping[str, list[int]], fill: int = 1) -> bytes:
    """A valid bf16 file of tensors with these shapes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, shape in shapes.items():
        size = 2
        for side in shape:
            size *= side
        offsets = [position, position + size]
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": offsets}
        position += size
    return raw_file(header, bytes([fill]) * position)


def write_config(directory: Path, **changes: Any) -> None:
    """Write config.json with some keys changed (``None`` removes one)."""
    config = {key: value for key, value in {**CONFIG, **changes}.items() if value is not None}
    (directory / "config.json").write_text(json.dumps(config))


def write_tokenizer(directory: Path, tokens: int = VOCAB) -> None:
    """Write a tokenizer.json whose ids are 0 to ``tokens`` - 1."""
    vocab = {f"t{number}": number for number in range(tokens)}
    tokenizer = {"model": {"type": "BPE", "vocab": vocab, "merges": []}, "added_tokens": []}
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))


def write_checkpoint(directory: Path, *, fill: int = 1) -> Path:
    """Write a two-shard checkpoint that passes every check; ``fill`` is its weights' byte."""
    directory.mkdir(parents=True)
    names = list(SHAPES)
    weight_map: dict[str, str] = {}
    for shard, part in zip(SHARDS, (names[:2], names[2:]), strict=True):
        (directory / shard).write_bytes(shard_bytes({n: SHAPES[n] for n in part}, fill))
        weight_map |= dict.fromkeys(part, shard)
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    write_config(directory)
    write_tokenizer(directory)
    (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ x }}"}))
    return directory
