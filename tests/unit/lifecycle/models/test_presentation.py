"""What a person reads: quoted answers, progress lines, and who did it."""

from __future__ import annotations

import logging

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle.models.failures import plain_failures
from lifecycle.models.metadata import conversation
from lifecycle.models.progress import log_progress
from lifecycle.models.provenance import actor_of
from registry.errors import CheckpointError


@given(st.text(alphabet="`~\n<b>a", max_size=60))
def test_generated_text_cannot_leave_its_quotation(text: str) -> None:
    shown = str(conversation("question", text).value)
    quoted = shown.split("**Answer**\n\n")[1]
    fence = quoted.split("text\n")[0]
    assert set(fence) == {"`"} and len(fence) >= 3
    assert quoted == f"{fence}text\n{text}\n{fence}"
    assert fence not in text


def test_progress_writes_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    report = log_progress(logging.getLogger("run"), every_seconds=2, clock=lambda: now)
    with caplog.at_level(logging.INFO, "run"):
        for step in range(100):
            now = step / 10
            report("hash", step * 10_000_000, 1_000_000_000)
    assert len(caplog.messages) == 4
    assert caplog.messages[0] == "hash: 200 of 1,000 MB, 20 %"


@pytest.mark.parametrize(
    ("tags", "actor"),
    [
        ({}, "dagster:user"),
        ({"dagster/sensor_name": "model_drop"}, "dagster:sensor/model_drop"),
        ({"dagster/schedule_name": "nightly"}, "dagster:schedule/nightly"),
    ],
)
def test_the_audit_log_names_what_started_the_run(tags: dict[str, str], actor: str) -> None:
    assert actor_of(dg.DagsterRun(job_name="intake_model", tags=tags)) == actor


def test_an_error_keeps_its_three_parts_and_is_not_retried() -> None:
    with pytest.raises(dg.Failure) as caught, plain_failures():
        raise CheckpointError("a shard is missing", where="model-2", fix="copy it")
    failure = caught.value
    assert failure.description == "a shard is missing (model-2); copy it"
    assert {name: value.value for name, value in failure.metadata.items()} == {
        "what": "a shard is missing",
        "where": "model-2",
        "fix": "copy it",
        "code": "bad_checkpoint",
    }
    assert failure.allow_retries is False
