"""A checkpoint of a random model, a few megabytes, with a real tokenizer and chat template.

Made in a process of its own, so that a test process that must stay without torch does.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

_MAKE_MODEL = """
import sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(int(sys.argv[2]))
config = LlamaConfig(
    vocab_size=49152, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
    bos_token_id=1, eos_token_id=2, tie_word_embeddings=False,
)
model = LlamaForCausalLM(config)
with torch.no_grad():
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.normal_(std=0.25)  # so that the best token depends on the prompt
model.to(torch.bfloat16).save_pretrained(sys.argv[1])
"""
_TEXT_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def make_tiny_checkpoint(target: Path, *, text_files_of: Path, seed: int = 0) -> Path:
    """Write a random two-layer Llama with the tokenizer of another checkpoint; returns ``target``.

    Args:
        target: directory to make.
        text_files_of: a checkpoint with a vocabulary of 49,152 tokens (the demo model).
        seed: of the random weights.
    """
    command = [sys.executable, "-c", _MAKE_MODEL, str(target), str(seed)]
    subprocess.run(command, check=True, capture_output=True, timeout=170)
    for name in _TEXT_FILES:
        shutil.copyfile(text_files_of / name, target / name)
    return target
