"""The second hook into Hugging Face's model code: attention over the pool's rows.

Registered under a name for which transformers has no mask function, so it builds no mask
at all; each span attends to its own slot's rows and nothing else.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from registry.errors import CheckpointError
from serving.engine.batch import AttentionSpan, RaggedBatch

NAME = "ironworks"
"""Name of the implementation in transformers' ``AttentionInterface``."""


def ragged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    ragged_batch: RaggedBatch | None = None,
    **variant: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of a packed batch.

    Args:
        module: the calling attention layer.
        query: [1, heads, T, size].
        key: the layer's pool, [rows, KV heads, size]; KV heads divide heads.
        value: the layer's pool, [rows, KV heads, value size].
        attention_mask: always None, since nobody builds one.
        scaling: factor on the scores; None is 1/√size.
        ragged_batch: which rows each query sees; travels as a keyword through the model.
        variant: what else the model asks of its attention.

    Returns:
        [1, T, heads, value size], and None for the weights.

    Raises:
        CheckpointError: the model needs an attention this hook does not compute.
    """
    if ragged_batch is None or attention_mask is not None:
        raise _unsupported(module, "does not hand its keywords to the attention")
    if getattr(module, "is_causal", True) is False or variant.get("is_causal") is False:
        raise _unsupported(module, "attends to later tokens")
    for name in ("sliding_window", "softcap", "s_aux", "position_bias", "alibi"):
        if variant.get(name) is not None:
            raise _unsupported(module, f"asks for {name}")
    output = query.new_empty((query.shape[2], query.shape[1], value.shape[2]))
    for span in ragged_batch.spans:
        output[span.begin : span.end] = _attend(span, query, key, value, scaling)
    return output[None], None


def _attend(
    span: AttentionSpan,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float | None,
) -> torch.Tensor:
    """[count, heads, value size] of one span."""
    heads, kv_heads = query.shape[1], key.shape[1]
    count, group = span.end - span.begin, heads // kv_heads
    keys = key[span.row : span.row + span.keys].transpose(0, 1)
    values = value[span.row : span.row + span.keys].transpose(0, 1)
    if count == 1:
        # One query sees all keys, so the group of heads that shares them can take the
        # place of the query dimension: no mask and no repeated keys.
        folded = query[0, :, span.begin].view(1, kv_heads, group, -1)
        out = scaled_dot_product_attention(folded, keys[None], values[None], scale=scaling)
        return out.reshape(1, heads, -1)
    grouped = query[0, :, span.begin : span.end].view(kv_heads, group, count, -1)
    out = scaled_dot_product_attention(
        grouped,
        # Repeated by a stride of 0, not by a copy.
        keys[:, None].expand(-1, group, -1, -1),
        values[:, None].expand(-1, group, -1, -1),
        attn_mask=span.mask,
        is_causal=span.mask is None,
        scale=scaling,
    )
    return out.flatten(0, 1).transpose(0, 1)


def _unsupported(module: torch.nn.Module, why: str) -> CheckpointError:
    return CheckpointError(
        f"this architecture can't be served: {type(module).__name__} {why}",
        where="config.json",
        fix="serve a model with plain causal attention (Llama, Qwen2, Qwen3, …)",
    )


AttentionInterface.register(NAME, ragged_attention)
