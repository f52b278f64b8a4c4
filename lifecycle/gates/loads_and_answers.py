"""Gate ``loads_and_answers``: the version loads and says the same thing twice.

The model runs in a process of its own (``serving.engine.probe``) under limits, so that a
model that exhausts memory, hangs or crashes the interpreter ends that process only. It runs on
the CPU: the accelerators of this host may be full with what is in production.
"""

import hashlib
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lifecycle.gates.limited_process import Ended, Limits, run_limited
from lifecycle.gates.outcome import GateOutcome

NAME = "loads_and_answers"

_LIBRARY_ADDRESS_SPACE = 16 * 1024**3
"""Virtual bytes that Python, torch and its threads may map beside the weights.

Mostly never touched. Seen: 1.2 GiB with two cores and torch's CPU build; the CUDA build maps
several more, and every thread reserves a heap arena of 64 MiB and a stack of 8 MiB.
"""
_WEIGHT_COPIES = 4
"""Address space per stored byte: read buffer, a widened copy (bf16 → fp32), and slack."""


@dataclass(frozen=True)
class Question:
    """What to ask, and how long to wait."""

    prompt: str = "What is the capital of France?"
    max_tokens: int = 32
    deadline_seconds: float = 300.0


def evaluate(directory: Path, question: Question) -> GateOutcome:
    """Load the model directory in a limited process and generate greedily, twice."""
    stored = sum(path.stat().st_size for path in directory.glob("*.safetensors"))
    limits = Limits(
        wall_seconds=question.deadline_seconds,
        cpu_seconds=int(question.deadline_seconds * (os.cpu_count() or 1)) + 1,
        address_space_bytes=_LIBRARY_ADDRESS_SPACE + _WEIGHT_COPIES * stored,
    )
    command = [
        *(sys.executable, "-m", "serving.engine.probe", str(directory)),
        *("--prompt", question.prompt),
        *("--max-tokens", str(question.max_tokens)),
        "--json",
    ]
    try:
        ended = run_limited(command, env=_environment(), limits=limits)
    except OSError as error:
        return GateOutcome("inconclusive", f"the probe could not be started: {error.strerror}")
    return judge(ended, question)


def judge(ended: Ended, question: Question) -> GateOutcome:
    """Turn the end of the probe into an outcome."""
    if ended.exit_code in (None, -signal.SIGKILL, -signal.SIGXCPU):
        # Too slow for its limits, or the kernel ran out of memory: the host's fault as
        # likely as the model's.
        return GateOutcome(
            "inconclusive",
            f"no answer: {ended.why}",
            {"deadline_ms": int(question.deadline_seconds * 1000)},
            ("raise deadline_seconds, or try again when this host is less busy",),
        )
    report = _last_json_line(ended.stdout)
    if "error" in report:
        return GateOutcome("fail", "the model does not load", findings=(_error_text(report),))
    if ended.exit_code != 0 or "text" not in report:
        return GateOutcome(
            "fail",
            f"the probe gave no answer: {ended.why}",
            {"exit_code": ended.exit_code},
            tuple(line for line in ended.stderr_tail.splitlines()[-3:] if line.strip()),
        )
    return _judge_answer(report, question.prompt)


def _judge_answer(report: dict[str, Any], prompt: str) -> GateOutcome:
    text = str(report["text"])
    deterministic = bool(report.get("deterministic"))
    numbers: dict[str, int | str | bool] = {
        "deterministic": deterministic,
        "tokens": int(report.get("tokens", 0)),
        "answer_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "load_ms": round(1000 * float(report.get("load_seconds", 0))),
        "generate_ms": round(1000 * float(report.get("generate_seconds", 0))),
        "peak_rss_bytes": int(report.get("peak_rss_bytes", 0)),
        "parameters": int(report.get("parameters", 0)),
        "architecture": str(report.get("architecture", "")),
    }
    findings = []
    if not deterministic:
        findings.append("two greedy generations from the same prompt differ")
    if not text.strip():
        findings.append("the answer is empty, or only white space")
    if findings:
        return GateOutcome(
            "fail",
            "it loads but does not answer properly",
            numbers,
            tuple(findings),
            (prompt, text),
        )
    return GateOutcome(
        "pass", "it loads, and two greedy answers are the same", numbers, sample=(prompt, text)
    )


def _last_json_line(stdout: str) -> dict[str, Any]:
    for line in reversed(stdout.splitlines()):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return {}


def _error_text(report: dict[str, Any]) -> str:
    error = report["error"]
    if not isinstance(error, dict):
        return str(error)[:500]
    parts = [str(error.get(key) or "") for key in ("what", "message", "where", "fix")]
    return "; ".join(part for part in parts if part)[:500]


def _environment() -> dict[str, str]:
    """Only what a Python process needs: no secrets, no network, no accelerator."""
    passed_on = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH")
    return {name: os.environ[name] for name in passed_on if name in os.environ} | {
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
