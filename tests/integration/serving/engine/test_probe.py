"""The probe: one JSON line, whatever the model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def run(*arguments: object) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "serving.engine.probe", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (line,) = done.stdout.splitlines()
    return done.returncode, json.loads(line)


def test_the_demo_model_answers_sensibly_and_the_same_twice(demo_model_dir: Path) -> None:
    status, report = run(
        demo_model_dir, "--prompt", "What is the capital of France?", "--max-tokens", 24
    )
    assert status == 0, report
    assert "Paris" in report["text"]
    assert report["deterministic"] is True
    assert 0 < report["tokens"] <= 24
    assert (report["architecture"], report["parameters"]) == ("LlamaForCausalLM", 134515008)
    assert report["peak_rss_bytes"] > 2 * report["parameters"]
    assert report["load_seconds"] > 0 and report["generate_seconds"] > 0


def test_a_model_without_a_tokenizer_is_an_error_with_a_fix(tiny_model: Path) -> None:
    status, report = run(tiny_model, "--prompt", "hello")
    assert status == 2
    assert "tokenizer" in report["error"]["what"] and report["error"]["fix"]


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_no_model_at_all_is_an_error_that_names_the_place(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    status, report = run(tmp_path / name, "--prompt", "hello")
    assert status == 2 and report["error"]["what"] and "Traceback" not in report["error"]["what"]
