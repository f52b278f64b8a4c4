"""Is this directory a checkpoint that is complete, unharmed and safe to load?

The one door for every reader of model files: the CLI, the drop-folder sensor, the gates
and the engine's loader all ask here first. Pure Python; reads headers, not weights.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.checkpoint_config import (
    Finding,
    config_findings,
    positive,
    read_config,
    read_json,
    text_config,
)
from registry.errors import CheckpointError
from registry.safe_files import check_relative_path, in_progress, list_files
from registry.safetensors_header import Header, TensorSpec, TruncatedError, read_header

__all__ = ["CheckpointFacts", "Finding", "check_checkpoint", "check_config", "is_complete"]

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
TEMPLATE = "chat_template.jinja"
_SHARD_NAME = re.compile(r"-\d{5}-of-\d{5}\.safetensors$")


@dataclass(frozen=True)
class CheckpointFacts:
    """What a checked directory holds.

    Attributes:
        files: relative paths of all files, sorted.
        shards: the safetensors files among them, sorted.
        weight_bytes: size of the shards together.
        tensors: number of tensors.
        parameters: number of elements of all tensors.
        dtype: the safetensors dtype of most elements, such as ``BF16``.
        architecture: first of config.json's ``architectures``, such as ``LlamaForCausalLM``.
        model_type: config.json's ``model_type``.
        vocab_size, hidden_size, layers, context_length: from config.json; 0 if it
            doesn't say.
        has_chat_template: there is one, in either place where transformers looks.
    """

    files: tuple[str, ...]
    shards: tuple[str, ...]
    weight_bytes: int
    tensors: int
    parameters: int
    dtype: str
    architecture: str
    model_type: str
    vocab_size: int
    hidden_size: int
    layers: int
    context_length: int
    has_chat_template: bool


def check_checkpoint(directory: Path) -> CheckpointFacts:
    """Check every file and every header of a model directory.

    Raises:
        CheckpointError: names the file, what is wrong with it and what to do.
    """
    files = list_files(directory)
    config = read_config(directory)
    architecture = _architecture(config)
    headers = _read_shards(directory, files)
    elements: Counter[str] = Counter()
    for header in headers.values():
        for spec in header.tensors.values():
            elements[spec.dtype] += spec.elements
    text = text_config(config)
    return CheckpointFacts(
        files=tuple(files),
        shards=tuple(headers),
        weight_bytes=sum(header.size for header in headers.values()),
        tensors=sum(len(header.tensors) for header in headers.values()),
        parameters=elements.total(),
        dtype=elements.most_common(1)[0][0],
        architecture=architecture,
        model_type=str(config.get("model_type", ""))[:80],
        vocab_size=positive(text, "vocab_size") or 0,
        hidden_size=positive(text, "hidden_size") or 0,
        layers=positive(text, "num_hidden_layers") or 0,
        context_length=positive(text, "max_position_embeddings") or 0,
        has_chat_template=_has_chat_template(directory, files),
    )


def check_config(directory: Path) -> list[Finding]:
    """Compare config.json with the tensors and the tokenizer; ``[]`` means that they fit.

    Raises:
        CheckpointError: the directory fails ``check_checkpoint``'s rules for config or shards.
    """
    files = list_files(directory)
    config = read_config(directory)
    tensors: dict[str, TensorSpec] = {}
    for header in _read_shards(directory, files).values():
        tensors.update(header.tensors)
    return config_findings(directory, config, tensors)


def is_complete(directory: Path) -> str | None:
    """Return why a dropped directory is not complete yet, or ``None``.

    Only what more copying could mend counts as incomplete. A directory that is whole
    but unsafe or damaged is complete: the gates then refuse it and say why.
    """
    try:
        names = sorted(path.name for path in directory.iterdir())
    except OSError as error:
        return f"the directory can't be read: {error.strerror}"
    for name in names:
        if in_progress(name):
            return f"{name} looks like a copy in progress"
    documents = {name for name in names if name.endswith(".json")}
    for name in sorted(documents | {"config.json", "tokenizer.json"}):
        if reason := _json_not_there(directory / name):
            return reason
    shards = [name for name in names if name.endswith(".safetensors")]
    if INDEX in names:
        try:
            shards = sorted(set(_weight_map(directory).values()) | set(shards))
        except CheckpointError:
            return None
    elif not shards:
        return f"neither {SINGLE} nor {INDEX} is there"
    elif SINGLE not in shards and any(_SHARD_NAME.search(name) for name in shards):
        return f"{INDEX} is not there yet"
    return _shard_not_there(directory, shards)


def _json_not_there(path: Path) -> str | None:
    if not path.is_file():
        return f"{path.name} is not there yet"
    try:
        read_json(path)
    except CheckpointError as error:
        if isinstance(error.__cause__, ValueError):
            return f"{path.name} is not complete JSON yet"
    return None


def _shard_not_there(directory: Path, shards: list[str]) -> str | None:
    for name in shards:
        path = directory / name
        if not path.is_file():
            return f"{name} is not there yet"
        try:
            read_header(path)
        except TruncatedError as error:
            return f"{name}: {error.what}"
        except CheckpointError:
            continue
    return None


def _architecture(config: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise CheckpointError(
            "architectures does not name the model class",
            where="config.json",
            fix='add it, such as "architectures": ["LlamaForCausalLM"]',
        )
    return names[0][:120]


def _weight_map(directory: Path) -> dict[str, str]:
    """Return tensor name → shard name of the index, its paths checked."""
    index = read_json(directory / INDEX)
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError("weight_map is missing or empty", where=INDEX)
    for shard in weight_map.values():
        if not isinstance(shard, str) or not shard.endswith(".safetensors"):
            raise CheckpointError("weight_map names a file that is not safetensors", where=INDEX)
        check_relative_path(shard, where=INDEX)
    return weight_map


def _read_shards(directory: Path, files: list[str]) -> dict[str, Header]:
    """Read all headers and compare them with the index; sorted by shard name."""
    shards = [name for name in files if name.endswith(".safetensors")]
    if INDEX not in files:
        if shards != [SINGLE]:
            raise CheckpointError(
                f"{SINGLE} is missing" if not shards else f"{INDEX} is missing",
                where=str(directory),
                fix=f"a checkpoint is {SINGLE}, or shards with {INDEX}",
            )
        header = read_header(directory / SINGLE)
        if not header.tensors:
            raise CheckpointError("the file holds no tensors", where=SINGLE)
        return {SINGLE: header}
    weight_map = _weight_map(directory)
    for name in sorted(set(weight_map.values())):
        if name not in shards:
            raise CheckpointError(
                "a shard is missing", where=name, fix=f"copy it beside {INDEX}, which names it"
            )
    for name in shards:
        if name not in weight_map.values():
            raise CheckpointError(
                f"{INDEX} does not list this file", where=name, fix="remove it, or fix the index"
            )
    headers = {name: read_header(directory / name) for name in shards}
    _compare_with_index(weight_map, headers)
    return headers


def _compare_with_index(weight_map: Mapping[str, str], headers: Mapping[str, Header]) -> None:
    for tensor, shard in weight_map.items():
        if tensor not in headers[shard].tensors:
            raise CheckpointError(
                f"{INDEX} says that tensor {tensor[:80]!a} is here; it is not", where=shard
            )
    for shard, header in headers.items():
        for tensor in header.tensors:
            if weight_map.get(tensor) != shard:
                raise CheckpointError(
                    f"tensor {tensor[:80]!a} is not listed in {INDEX} for this file",
                    where=shard,
                    fix="re-export the checkpoint so that index and shards agree",
                )


def _has_chat_template(directory: Path, files: list[str]) -> bool:
    if TEMPLATE in files:
        return True
    if "tokenizer_config.json" not in files:
        return False
    settings = read_json(directory / "tokenizer_config.json")
    return isinstance(settings, dict) and bool(settings.get("chat_template"))
