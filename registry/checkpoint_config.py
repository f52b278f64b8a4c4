"""Reads ``config.json`` and compares it with the tensors and the tokenizer beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.errors import CheckpointError
from registry.safetensors_header import TensorSpec

MAX_JSON_BYTES = 256 * 1024 * 1024
_MAX_DEPTH = 100

# Keys that make transformers fetch or pick code, at any depth of config.json.
_CODE_KEYS = ("auto_map", "trust_remote_code")
_CODE_PREFIX = "_attn_implementation"

_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
_EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight")


@dataclass(frozen=True)
class Finding:
    """Something in a checkpoint that doesn't fit together."""

    file: str
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}; {self.fix}"


def read_json(path: Path) -> Any:
    """Read a JSON file that belongs to a checkpoint.

    Raises:
        CheckpointError: missing, over 256 MiB, not UTF-8, not JSON, or a key given twice.
    """
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise CheckpointError("the JSON file is larger than 256 MiB", where=path.name)
        return json.loads(path.read_bytes().decode(), object_pairs_hook=_object(path.name))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path.name} is missing", where=str(path.parent), fix="copy it into the directory"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            "the file is not readable UTF-8 JSON", where=path.name, fix="get a good copy"
        ) from error


def _object(where: str) -> Any:
    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise CheckpointError("a key is given twice in one object", where=where)
        return result

    return build


def read_config(directory: Path) -> dict[str, Any]:
    """Read ``config.json`` and refuse one that would run or choose code.

    Raises:
        CheckpointError: unreadable, not an object, or it holds ``auto_map``,
            ``trust_remote_code`` or ``_attn_implementation*`` at any depth.
    """
    config = read_json(directory / "config.json")
    if not isinstance(config, dict):
        raise CheckpointError("config.json is not a JSON object", where="config.json")
    for key, path in _keys(config, ""):
        if key in _CODE_KEYS or key.startswith(_CODE_PREFIX):
            raise CheckpointError(
                f"the key {key[:60]!a} selects code to run",
                where=f"config.json: {path}",
                fix="remove the key; only architectures built into transformers are loaded",
            )
    return config


def _keys(value: Any, path: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    if depth > _MAX_DEPTH:
        raise CheckpointError(f"nested deeper than {_MAX_DEPTH}", where="config.json")
    if isinstance(value, dict):
        for key, item in value.items():
            yield key, f"{path}.{key}".lstrip(".")[:120]
            yield from _keys(item, f"{path}.{key}", depth + 1)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _keys(item, f"{path}[{number}]", depth + 1)


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a config that describes the language model."""
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config


def positive(config: Mapping[str, Any], key: str) -> int | None:
    """Return ``config[key]`` if it is a positive integer, else ``None``."""
    value = config.get(key)
    return value if type(value) is int and value > 0 else None


def config_findings(
    directory: Path, config: Mapping[str, Any], tensors: Mapping[str, TensorSpec]
) -> list[Finding]:
    """Compare ``config`` with the tensors of the shards and with the tokenizer files."""
    text = text_config(config)
    return [
        *_required(text),
        *_heads(text),
        *_layers(text, tensors),
        *_shapes(text, config, tensors),
        *_tokenizer(directory, text),
    ]


def _config(what: str, fix: str = "use the config.json these weights came with") -> Finding:
    return Finding("config.json", what, fix)


def _required(text: Mapping[str, Any]) -> Iterator[Finding]:
    for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"):
        if positive(text, key) is None:
            yield _config(f"{key} is not a positive integer")


def _heads(text: Mapping[str, Any]) -> Iterator[Finding]:
    hidden, heads = positive(text, "hidden_size"), positive(text, "num_attention_heads")
    shared = positive(text, "num_key_value_heads")
    if hidden and heads and "head_dim" not in text and hidden % heads:
        yield _config(f"num_attention_heads {heads} does not divide hidden_size {hidden}")
    if heads and shared and heads % shared:
        yield _config(f"num_key_value_heads {shared} does not divide num_attention_heads {heads}")


def _layers(text: Mapping[str, Any], tensors: Mapping[str, TensorSpec]) -> Iterator[Finding]:
    expected = positive(text, "num_hidden_layers")
    present = {int(match.group(1)) for name in tensors if (match := _LAYER.search(name))}
    if not expected or not present:
        return
    if missing := sorted(set(range(min(expected, 10_000))) - present):
        yield _config(f"num_hidden_layers is {expected}; no tensor is of layer {missing[0]}")
    if max(present) >= expected:
        yield _config(f"num_hidden_layers is {expected}; there are tensors of layer {max(present)}")


def _shapes(
    text: Mapping[str, Any], config: Mapping[str, Any], tensors: Mapping[str, TensorSpec]
) -> Iterator[Finding]:
    vocab, hidden = positive(text, "vocab_size"), positive(text, "hidden_size")
    if not vocab or not hidden:
        return
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings", False))
    embeddings = [name for name in tensors if name.endswith(_EMBEDDINGS)]
    outputs = [name for name in tensors if name.split(".")[-2:] == ["lm_head", "weight"]]
    for name in embeddings + outputs:
        if tensors[name].shape != (vocab, hidden):
            yield _config(
                f"{name} has shape {list(tensors[name].shape)}; "
                f"vocab_size and hidden_size say [{vocab}, {hidden}]"
            )
    if embeddings and not outputs and tied is False:
        yield _config(
            "there is no lm_head.weight and tie_word_embeddings is false",
            "set tie_word_embeddings to true if the model ties them, or add the tensor",
        )
    yield from _projections(text, hidden, tensors)


def _projections(
    text: Mapping[str, Any], hidden: int, tensors: Mapping[str, TensorSpec]
) -> Iterator[Finding]:
    heads = positive(text, "num_attention_heads")
    if not heads:
        return
    width = positive(text, "head_dim") or hidden // heads
    shared = positive(text, "num_key_value_heads") or heads
    rows = {"q_proj": heads * width, "k_proj": shared * width, "v_proj": shared * width}
    for name, spec in tensors.items():
        parts = name.split(".")
        if parts[-1] != "weight" or len(parts) < 2 or "layers" not in parts or len(spec.shape) != 2:
            continue
        expected = rows.get(parts[-2])
        if expected is not None and spec.shape != (expected, hidden):
            yield _config(
                f"{name} has shape {list(spec.shape)}; the heads say [{expected}, {hidden}]"
            )
            return  # one such tensor says it all; every layer repeats it


def _tokenizer(directory: Path, text: Mapping[str, Any]) -> Iterator[Finding]:
    fix = "use the tokenizer these weights were trained with"
    if not (directory / "tokenizer.json").is_file():
        yield Finding("tokenizer.json", "the file is missing", fix)
        return
    try:
        ids = tokenizer_ids(directory)
    except CheckpointError as error:
        yield Finding("tokenizer.json", error.what, error.fix or fix)
        return
    vocab = positive(text, "vocab_size")
    if not ids:
        yield Finding("tokenizer.json", "it holds no tokens", fix)
    elif vocab and max(ids) >= vocab:
        yield Finding(
            "tokenizer.json",
            f"wrong tokenizer: its highest id is {max(ids)}, the model's vocab_size is {vocab}",
            fix,
        )
    ends = text.get("eos_token_id")
    for end in ends if isinstance(ends, list) else [ends]:
        if ids and type(end) is int and end not in ids:
            yield Finding(
                "tokenizer.json", f"wrong tokenizer: it has no token with eos_token_id {end}", fix
            )


def tokenizer_ids(directory: Path) -> set[int]:
    """Return all token ids of ``tokenizer.json`` (vocabulary and added tokens).

    Raises:
        CheckpointError: the file is unreadable or isn't a tokenizers file.
    """
    tokenizer = read_json(directory / "tokenizer.json")
    model = tokenizer.get("model") if isinstance(tokenizer, dict) else None
    vocab = model.get("vocab") if isinstance(model, dict) else None
    added = tokenizer.get("added_tokens") or [] if isinstance(tokenizer, dict) else []
    if isinstance(vocab, dict):
        ids = set(vocab.values())
    elif isinstance(vocab, list):  # Unigram: [token, score] by position
        ids = set(range(len(vocab)))
    else:
        raise CheckpointError("it holds no vocabulary (model.vocab)", where="tokenizer.json")
    ids |= {token.get("id") for token in added if isinstance(token, dict)}
    if not all(type(token) is int and token >= 0 for token in ids):
        raise CheckpointError("a token id is not a natural number", where="tokenizer.json")
    return ids
