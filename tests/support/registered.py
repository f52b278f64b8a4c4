"""Versions in a registry, put there without the lifecycle."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from registry.policy import SPINE_GATES
from registry.store import Registry, Version

ACTOR = "test"


def add_version(registry: Registry, directory: Path, name: str) -> Version:
    """Ingest and register a model directory as ``model@version``."""
    model, version = name.split("@")
    manifest = registry.build_manifest(directory)
    registry.ingest(directory, manifest)
    return registry.register(
        manifest, model=model, version=version, actor=ACTOR, source=str(directory)
    )


def promote(registry: Registry, name: str, alias: str = "production") -> None:
    """Move the alias, with every gate of the built-in policy on record as passed."""
    for gate in SPINE_GATES:
        registry.record_gate(
            name, gate=gate, outcome="pass", numbers={}, actor=ACTOR, run_id="test"
        )
    registry.promote(name, alias=alias, actor=ACTOR, reason="a test needs it")


def write_text_only_model(directory: Path, *, weights: bytes) -> Path:
    """A directory with a real tokenizer and no real weights: for scripted engines."""
    directory.mkdir(parents=True)
    words = {word: number for number, word in enumerate(["<unk>", "iron", "works"])}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "works"}))
    (directory / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (directory / "model.safetensors").write_bytes(weights)
    return directory
