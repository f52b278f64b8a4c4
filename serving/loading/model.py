"""From verified bytes to a model of Hugging Face's code that is ready to run."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import init_empty_weights  # type: ignore[import-untyped]
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from registry.errors import CheckpointError, InputError
from serving.loading.reading import CheckpointBytes

CONFIG, GENERATION = "config.json", "generation_config.json"
_DTYPES = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
}


@dataclass(frozen=True)
class LoadedModel:
    """A model with its weights, and what the engine must know about it."""

    model: PreTrainedModel
    architecture: str
    dtype: str
    vocab_size: int
    context_length: int
    """Longest prompt plus output that the model was made for, tokens."""
    eos_token_ids: tuple[int, ...]
    parameters: int
    weight_bytes: int


def build_model(
    checkpoint: CheckpointBytes, *, device: torch.device, dtype: str, attention: str
) -> LoadedModel:
    """Make the model and give it its weights, without copying those of the right dtype.

    Args:
        checkpoint: takes the tensors out of it, so that a converted one is freed at once.
        device: where the tensors are.
        dtype: ``auto`` (config.json's), ``bfloat16``, ``float16`` or ``float32``.
        attention: name of the implementation in transformers' ``AttentionInterface``.

    Raises:
        CheckpointError: configuration and tensors don't fit, or an unsupported architecture.
        InputError: an unknown dtype.
    """
    raw = _document(checkpoint, CONFIG)
    if CONFIG not in checkpoint.documents:
        raise CheckpointError("the model has no config.json", where=CONFIG)
    generation = _document(checkpoint, GENERATION)
    target = _target_dtype(raw, checkpoint.tensors, dtype)
    model = _empty_model(raw, target, attention)
    _assign(model, checkpoint.tensors)
    torch.nn.Module.to(model, device)
    model.train(False).requires_grad_(False)
    config = model.config
    weights = {tensor.data_ptr(): tensor for tensor in model.state_dict().values()}
    return LoadedModel(
        model=model,
        architecture=type(model).__name__,
        dtype=str(model.dtype).removeprefix("torch."),
        vocab_size=config.vocab_size,
        context_length=_context_length(config),
        eos_token_ids=_eos_token_ids(generation, raw),
        parameters=sum(tensor.numel() for tensor in weights.values()),
        weight_bytes=sum(tensor.nbytes for tensor in weights.values()),
    )


def _document(checkpoint: CheckpointBytes, name: str) -> dict[str, Any]:
    try:
        value = json.loads(checkpoint.documents.get(name, b"{}"))
    except ValueError as error:
        raise CheckpointError("the file is not valid JSON", where=name) from error
    if not isinstance(value, dict):
        raise CheckpointError("the file is not a JSON object", where=name)
    return value


def _target_dtype(raw: dict[str, Any], tensors: dict[str, torch.Tensor], dtype: str) -> torch.dtype:
    wanted: object = dtype
    if dtype == "auto":
        # "torch_dtype" is the key that transformers wrote before its version 5.
        wanted = raw.get("dtype") or raw.get("torch_dtype") or _most_common_dtype(tensors)
    if not isinstance(wanted, str) or wanted not in _DTYPES:
        allowed = ", ".join(_DTYPES)
        raise InputError(
            f"dtype {str(wanted)[:40]} can't be served",
            where="dtype" if dtype != "auto" else CONFIG,
            fix=f"use one of {allowed}",
        )
    return _DTYPES[wanted]


def _most_common_dtype(tensors: dict[str, torch.Tensor]) -> str:
    elements: Counter[torch.dtype] = Counter()
    for tensor in tensors.values():
        elements[tensor.dtype] += tensor.numel()
    return str(elements.most_common(1)[0][0]).removeprefix("torch.") if elements else "float32"


def _empty_model(raw: dict[str, Any], dtype: torch.dtype, attention: str) -> PreTrainedModel:
    """The model's modules with meta parameters.

    Buffers that no file holds, such as the rotary frequencies, are computed for real here.
    """
    model_type = raw.get("model_type")
    if not isinstance(model_type, str) or model_type not in CONFIG_MAPPING:
        raise _unsupported(f"model type {str(model_type)[:40]!r} is unknown")
    if "quantization_config" in raw:
        raise _unsupported("quantized checkpoints are not served")
    if raw.get("is_encoder_decoder"):
        raise _unsupported("encoder-decoder models are not served")
    try:
        # From the bytes that were verified, never from the file again.
        config = CONFIG_MAPPING[model_type].from_dict(raw)
        with init_empty_weights(include_buffers=False):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
                config, dtype=dtype, attn_implementation=attention
            )
    except Exception as error:
        if isinstance(error, KeyError) and error.args == (attention,):
            raise _unsupported(f"{model_type} has an attention of its own") from error
        # transformers raises anything from KeyError to its own validation errors here.
        text = str(error).partition("\n")[0][:200]
        raise _unsupported(f"transformers can't make the model: {text}") from error
    if type(model).__name__ not in raw.get("architectures", []):
        raise _unsupported(f"{type(model).__name__} is not in its list of architectures")
    if not model._supports_attention_backend:
        raise _unsupported(f"{type(model).__name__} has an attention of its own")
    return model


def _assign(model: PreTrainedModel, tensors: dict[str, torch.Tensor]) -> None:
    wanted = model.state_dict()
    tied: dict[str, str] = dict(model.all_tied_weights_keys)
    _drop_copies_of_tied(tensors, tied)
    if not _has_all(wanted, tensors, tied) and get_model_conversion_mapping(
        model, add_legacy=False
    ):
        raise _unsupported("transformers re-arranges its weights while loading, we don't")
    _check_names(wanted, tensors, tied)
    state = {}
    for name in list(tensors):
        tensor, target = tensors.pop(name), wanted[name]
        if tensor.shape != target.shape:
            raise CheckpointError(
                f"tensor {name} has shape {list(tensor.shape)}, "
                f"config.json asks for {list(target.shape)}",
                where=CONFIG,
                fix="take config.json and weights from the same model",
            )
        state[name] = tensor.to(target.dtype)
    model.load_state_dict(state, strict=False, assign=True)
    model.tie_weights()  # assigning made two parameters of each tied pair
    unset = [n for n, t in (*model.named_parameters(), *model.named_buffers()) if t.is_meta]
    if unset:
        raise _unsupported(f"{unset[0]} got no value from the checkpoint")


def _drop_copies_of_tied(tensors: dict[str, torch.Tensor], tied: dict[str, str]) -> None:
    """Some exports store a tied pair twice; equal copies are harmless, others a lie."""
    for name, source in tied.items():
        if name in tensors and source in tensors:
            if not torch.equal(tensors[name], tensors[source]):
                raise CheckpointError(
                    f"config.json says {name} is {source}, but the two tensors differ",
                    where=CONFIG,
                    fix='set "tie_word_embeddings" as the model was trained',
                )
            del tensors[name]


def _has_all(
    wanted: dict[str, Any], tensors: dict[str, torch.Tensor], tied: dict[str, str]
) -> bool:
    return wanted.keys() <= tensors.keys() | tied.keys()


def _check_names(
    wanted: dict[str, Any], tensors: dict[str, torch.Tensor], tied: dict[str, str]
) -> None:
    sources = set(tied.values())
    missing = sorted(n for n in wanted.keys() - tensors.keys() if n not in tied)
    # A checkpoint may store a tied pair under either name.
    for name, source in tied.items():
        if source in missing and name in tensors:
            tensors[source] = tensors.pop(name)
            missing.remove(source)
    surplus = sorted(tensors.keys() - wanted.keys() - sources)
    for names, problem in ((missing, "has no tensor"), (surplus, "has a tensor too many:")):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise CheckpointError(
                f"the checkpoint {problem} {names[0][:120]}{more}",
                where=CONFIG,
                fix="take config.json and weights from the same model",
            )


def _context_length(config: PreTrainedConfig) -> int:
    """Longest sequence that the model can be served with, tokens.

    Two rotary scalings depend on the longest sequence of a batch, so that one request would
    change the numbers of another. Their models are served up to where the scaling begins.
    """
    length = getattr(config, "max_position_embeddings", None)
    if not isinstance(length, int) or length < 2:
        raise _unsupported("config.json does not say how long its context is")
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in ("dynamic", "longrope"):
        return min(length, int(rope.get("original_max_position_embeddings") or length))
    return length


def _eos_token_ids(generation: dict[str, Any], raw: dict[str, Any]) -> tuple[int, ...]:
    """As ``generate()`` takes them: generation_config.json if there is one, else config.json."""
    value = (generation or raw).get("eos_token_id")
    values = value if isinstance(value, list) else [value]
    return tuple(v for v in values if isinstance(v, int))


def _unsupported(why: str) -> CheckpointError:
    return CheckpointError(
        f"this model can't be served: {why}",
        where=CONFIG,
        fix="serve a causal language model that transformers itself supports",
    )
