"""``python -m serving.engine.probe DIR``: does this model load, and what does it answer?

For the loads-and-answers gate, which runs it in a process with limits: it loads the
directory as an engine would, answers one prompt greedily twice, and prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from registry.checkpoint_files import check_checkpoint
from registry.errors import IronworksError
from serving.engine.engine import Engine
from serving.engine.environment import prepare_environment
from serving.engine.messages import Generate, Load, SamplingParams
from serving.loading.inventory import digests_of
from serving.telemetry.logging import configure_logging
from serving.text.codec import TextCodec

# The hooks' self-check packs two sequences; the prompt needs one slot.
_SLOTS = 2
_BATCH_TOKENS = 512


def main() -> int:
    """Print the report, or ``{"error": …}``; exit status 0 or 2."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--prompt", required=True, help="the user's message")
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--json", action="store_true", help="a JSON line (the only format)")
    arguments = parser.parse_args()
    configure_logging("probe")
    prepare_environment()
    try:
        report = probe(arguments.directory, arguments.prompt, arguments.max_tokens)
    except IronworksError as error:
        report = {"error": _error(error.what, error.where, error.fix, error.code)}
    except (MemoryError, RuntimeError, OSError) as error:
        what = f"{type(error).__name__}: {str(error)[:300]}"
        report = {"error": _error(what, str(arguments.directory), "", "engine")}
    print(json.dumps(report), flush=True)
    return 2 if "error" in report else 0


def probe(directory: Path, prompt: str, max_tokens: int) -> dict[str, Any]:
    """Load a model on the CPU and answer a prompt greedily, twice.

    Returns:
        text, tokens (count), deterministic, load_seconds, generate_seconds (of both
        answers), peak_rss_bytes, architecture, parameters.

    Raises:
        CheckpointError: the directory can't be loaded.
        IronworksError: the model loads but gives no answer.
    """
    from serving.engine.loading import ModelLoad  # torch: after prepare_environment()

    started = time.monotonic()
    facts = check_checkpoint(directory)
    codec = TextCodec.from_directory(directory)
    message = [{"role": "user", "content": prompt}]
    token_ids = codec.render_chat(message) if codec.has_chat_template else codec.encode(prompt)
    load = ModelLoad(
        Load(
            model_dir=str(directory),
            files=digests_of(directory),
            device="cpu",
            dtype="auto",
            max_slots=_SLOTS,
            max_model_len=len(token_ids) + max(max_tokens, 1),
            max_batch_tokens=_BATCH_TOKENS,
            threads=0,
        ),
        lambda _phase, _done, _total: None,
    )
    load.verify()
    engine, _ = load.start()
    loaded = time.monotonic()
    answers = [_answer(engine, token_ids, max_tokens) for _ in range(2)]
    return {
        "text": codec.decode(answers[0]),
        "tokens": len(answers[0]),
        "deterministic": answers[0] == answers[1],
        "load_seconds": round(loaded - started, 6),
        "generate_seconds": round(time.monotonic() - loaded, 6),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "architecture": facts.architecture,
        "parameters": facts.parameters,
    }


def _answer(engine: Engine, token_ids: list[int], max_tokens: int) -> list[int]:
    engine.add(Generate("probe", tuple(token_ids), SamplingParams(max_tokens=max_tokens)))
    answer: list[int] = []
    while engine.busy:
        result = engine.step()
        if result.failures:
            raise IronworksError(result.failures[0].what)
        for output in result.outputs:
            answer += output.token_ids
    return answer


def _error(what: str, where: str, fix: str, code: str) -> dict[str, str]:
    return {"what": what, "where": where, "fix": fix, "code": code}


if __name__ == "__main__":
    sys.exit(main())
