"""GGUF in, a checkpoint that can be served out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter, TokenType
from safetensors.torch import load_file

from registry.checkpoint_files import check_checkpoint

HIDDEN, HEADS, FEED_FORWARD, LAYERS = 64, 4, 128, 2


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama with byte tokens, as llama.cpp would write it."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    tokens = ["<|end|>", "ab", *(chr(c) for c in range(ord("!"), ord("~") + 1)), "Ġ", "Ċ"]
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL] + [TokenType.NORMAL] * (len(tokens) - 1))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    chance = np.random.default_rng(3)

    def add(name: str, *shape: int) -> None:
        tensor = chance.normal(size=shape).astype(np.float32)
        writer.add_tensor(name, tensor, raw_dtype=GGMLQuantizationType.F32)

    add("token_embd.weight", len(tokens), HIDDEN)
    add("output.weight", len(tokens), HIDDEN)
    add("output_norm.weight", HIDDEN)
    for layer in range(LAYERS):
        prefix = f"blk.{layer}"
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"{prefix}.{name}.weight", HIDDEN, HIDDEN)
        add(f"{prefix}.ffn_gate.weight", FEED_FORWARD, HIDDEN)
        add(f"{prefix}.ffn_up.weight", FEED_FORWARD, HIDDEN)
        add(f"{prefix}.ffn_down.weight", HIDDEN, FEED_FORWARD)
        add(f"{prefix}.attn_norm.weight", HIDDEN)
        add(f"{prefix}.ffn_norm.weight", HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "serving.loading.gguf_import", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_result_is_a_safe_checkpoint_with_our_steps_as_the_only_noise(
    gguf_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = run(gguf_file, out)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert all(line.startswith("[") for line in done.stdout.splitlines())

    facts = check_checkpoint(out)
    assert (facts.architecture, facts.dtype, facts.layers) == ("LlamaForCausalLM", "BF16", LAYERS)
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o644}
    assert "/" not in json.dumps(json.loads((out / "config.json").read_text()))
    (shard,) = facts.shards
    embedding = load_file(out / shard)["model.embed_tokens.weight"]
    assert float(embedding.float().std()) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("content", [b"", b"GGU", b"\x80\x02pickle", b"GGUF\x03\0\0\0 broken"])
def test_a_file_that_is_none_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(content)
    done = run(file, tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and "model.gguf" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_file_and_a_full_target_are_refused(gguf_file: Path, tmp_path: Path) -> None:
    missing = run(tmp_path / "no.gguf", tmp_path / "out")
    assert (missing.returncode, "no.gguf" in missing.stderr) == (2, True)
    (tmp_path / "kept.txt").write_text("mine")
    full = run(gguf_file, tmp_path)
    assert full.returncode == 2 and "not empty" in full.stderr
    assert (tmp_path / "kept.txt").read_text() == "mine"
