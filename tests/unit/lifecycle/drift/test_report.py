"""The report over a registry: freeze once, judge what follows, put every verdict on record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.drift_traffic import SHIFTS, STREAM, Clock, Source
from lifecycle.drift.presentation import drift_metadata
from lifecycle.drift.report import StreamReport, report
from lifecycle.drift.verdict import Rule
from registry.store import Registry
from serving.telemetry.sketches import Sketches
from tests.support.plain_checkpoint import write_checkpoint
from tests.support.registered import add_version, promote

NAME = "tiny@v1"


class World:
    """A version in production and the traffic it sees."""

    def __init__(self, root: Path) -> None:
        self.registry = Registry.open(root / "registry")
        self.version = add_version(self.registry, write_checkpoint(root / "model"), NAME)
        promote(self.registry, NAME)
        self.source = Source(11)
        self.sketches = Sketches(clock=Clock())
        self.stream = STREAM._replace(model="tiny", digest=self.version.digest)

    def serve(self, requests: int) -> None:
        for seen, _ in zip(self.source, range(requests), strict=False):
            self.sketches.add(self.stream, seen)

    def report(self) -> StreamReport:
        _, (one,) = report(self.registry, [self.sketches.as_json()], Rule(), "test")
        return one

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event.body for event in self.registry.audit.events() if event.kind == kind]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_from_the_first_request_to_an_alarm(world: World) -> None:
    world.serve(900)
    assert world.report().verdict.outcome == "insufficient_data"
    assert world.events("drift.frozen") == []

    world.serve(100)
    assert world.report().frozen_now
    world.serve(400)
    quiet = world.report()
    assert (quiet.verdict.outcome, quiet.frozen_now, len(quiet.judgements)) == ("ok", False, 2)

    world.source.traffic = SHIFTS["language"](world.source.traffic)
    world.serve(400)
    drifted = world.report()
    assert drifted.verdict.outcome == "alarm" and "prompt_script" in drifted.verdict.signals
    assert drifted.onset == "sudden"
    assert len(world.events("drift.frozen")) == 1
    outcomes = [body["outcome"] for body in world.events("drift.verdict")]
    assert outcomes == ["insufficient_data", "insufficient_data", "ok", "alarm"]
    last = world.events("drift.verdict")[-1]
    assert last["effect_milli"]["prompt_script"] > last["threshold_milli"]["prompt_script"]
    assert world.registry.audit.verify().ok


def test_the_page_shows_table_pictures_and_numbers(world: World) -> None:
    world.serve(1400)
    signals, streams = report(world.registry, [world.sketches.as_json()], Rule(), "test")
    page = drift_metadata(signals, streams, {"replica-2": "does not answer"})
    assert page["verdict"] == "ok" and page["alarms"] == 0
    assert len(page["signals"].records) == len(signals.definitions)
    assert 0 <= page["effect_prompt_tokens"] < 1
    for picture in ("histograms", "trend"):
        text = page[picture].md_str
        assert text.count("](data:image/png;base64,iVBOR") == 1
        assert len(text) < 200_000
    assert page["silent_replicas"] == {"replica-2": "does not answer"}


def test_a_version_that_no_alias_names_is_left_alone(world: World) -> None:
    world.stream = world.stream._replace(digest="f" * 64)
    world.serve(300)
    assert report(world.registry, [world.sketches.as_json()], Rule(), "test")[1] == []
    assert world.events("drift.verdict") == []


def test_no_replica_answers(world: World) -> None:
    signals, streams = report(world.registry, [], Rule(), "test")
    assert drift_metadata(signals, streams, {"replica-1": "gone"})["verdict"] == "none"
