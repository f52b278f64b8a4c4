"""``python -m serving.loading.gguf_import FILE.gguf OUT_DIR``: GGUF to safetensors, once.

GGUF is an import format only: nothing else reads it. The weights are dequantized to
bfloat16 and saved in shards of about 100 MB, with the tokenizer and its chat template.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from registry.errors import ConflictError, InputError, IronworksError

SHARD_SIZE = "100MB"
_MAGIC = b"GGUF"
# Keys that say where the model lay on the converting machine, and nothing of the model.
_LOCAL_KEYS = ("_name_or_path", "_model_name_or_path", "is_local", "local_files_only")


def main() -> int:
    """Import one file; exit status 0, or 2 with the error on standard error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("out_dir", type=Path, help="new or empty directory")
    arguments = parser.parse_args()
    try:
        import_gguf(arguments.file, arguments.out_dir)
    except IronworksError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def import_gguf(file: Path, out_dir: Path) -> None:
    """Convert a GGUF file to a checkpoint directory; tells each step on standard output.

    Raises:
        InputError: not a GGUF file, or one of an architecture that can't be imported.
        ConflictError: the target is not empty.
    """
    _check_source(file)
    if out_dir.exists() and any(out_dir.iterdir()):
        raise ConflictError(
            "the target directory is not empty", where=str(out_dir), fix="name a new directory"
        )
    out_dir.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()

    def say(step: str) -> None:
        print(f"[{time.monotonic() - started:5.1f} s] {step}", flush=True)

    say("loading transformers")
    _silence()
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    try:
        say(f"dequantizing {file.stat().st_size / 1e6:.0f} MB")
        # Without dequantize=True the model keeps GGUF's blocks and can't be saved.
        model = AutoModelForCausalLM.from_pretrained(
            file.parent,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.bfloat16,
            **source,
        )
        say("reading the tokenizer")
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **source)
    except Exception as error:  # transformers raises anything here
        raise InputError(
            f"the file can't be converted: {str(error).partition(chr(10))[0][:300]}",
            where=str(file),
            fix="import a safetensors checkpoint of the model instead",
        ) from error
    parameters = sum(p.numel() for p in model.parameters())
    say(f"writing {parameters / 1e6:.0f} million parameters as bfloat16")
    model.save_pretrained(out_dir, max_shard_size=SHARD_SIZE)
    tokenizer.save_pretrained(out_dir)
    _clean(out_dir)
    shards = len(list(out_dir.glob("*.safetensors")))
    say(f"done: {shards} shard{'s' if shards != 1 else ''} in {out_dir}")


def _check_source(file: Path) -> None:
    try:
        with file.open("rb") as source:
            magic = source.read(len(_MAGIC))
    except OSError as error:
        raise InputError(f"the file can't be read: {error.strerror}", where=str(file)) from error
    if magic != _MAGIC:
        raise InputError(
            "the file is not GGUF: it does not begin with that word",
            where=str(file),
            fix="download it again",
        )


def _silence() -> None:
    """Progress bars and advice of the libraries; our own steps say enough."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TQDM_DISABLE"] = "1"
    warnings.filterwarnings("ignore")
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.getLogger("accelerate").setLevel(logging.ERROR)


def _clean(out_dir: Path) -> None:
    """Make the result the same on every machine: no local names, ordinary modes."""
    for name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        path = out_dir / name
        if not path.is_file():
            continue
        content = json.loads(path.read_text())
        kept = {key: value for key, value in content.items() if key not in _LOCAL_KEYS}
        if kept != content:
            path.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n")
    for path in out_dir.iterdir():
        # transformers writes the shards for its own user alone.
        path.chmod(0o644)


if __name__ == "__main__":
    sys.exit(main())
