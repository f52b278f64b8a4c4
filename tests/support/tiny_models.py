"""Tiny random checkpoints of several architectures, made by transformers itself."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

VOCABULARY = 199
EOS = 7
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": EOS,
    "pad_token_id": 0,
}

ARCHITECTURES: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**SHAPE, tie_word_embeddings=False),
    "llama-tied": LlamaConfig(**SHAPE, tie_word_embeddings=True),
    "qwen2": Qwen2Config(**SHAPE, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SHAPE, head_dim=16, tie_word_embeddings=False),
}


def save_tiny(
    config: PreTrainedConfig,
    directory: Path,
    *,
    dtype: torch.dtype = torch.float32,
    shard_size: str = "60KB",
) -> Path:
    """Save a random model of a configuration as safetensors shards.

    The weights are larger than at a training's start, so that the logits' best token
    depends on the whole prompt and is not decided by rounding.
    """
    torch.manual_seed(1)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.25)
    model.to(dtype)
    model.config.dtype = dtype
    model.save_pretrained(directory, max_shard_size=shard_size)
    return directory
