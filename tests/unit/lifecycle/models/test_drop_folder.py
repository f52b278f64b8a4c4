"""What the drop-folder sensor decides, on real directories."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle.models.drop_folder import Dropped, decide, observe


def complete(_: Path) -> str | None:
    return None


def drop(intake: Path, name: str = "tiny/v1", content: str = "weights") -> Path:
    directory = intake / name
    directory.mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_text(content)
    return directory


def later(seconds: float = 60) -> float:
    return time.time() + seconds


def test_a_quiet_complete_directory_is_taken_in_once(tmp_path: Path) -> None:
    drop(tmp_path)
    first = decide(observe(tmp_path, {}, complete, later()), {}, settle_seconds=3)
    assert [item.name for item in first.intake] == ["tiny@v1"]
    second = decide(
        observe(tmp_path, first.handled, complete, later(90)), first.handled, settle_seconds=3
    )
    assert second.intake == () and second.waiting == ()


def test_a_directory_that_still_changes_waits_even_if_its_files_look_old(tmp_path: Path) -> None:
    directory = drop(tmp_path)
    for file in directory.iterdir():
        os.utime(file, (1, 1))  # as `cp -p` does
    os.utime(directory, (1, 1))
    decision = decide(observe(tmp_path, {}, complete, time.time()), {}, settle_seconds=30)
    assert decision.intake == ()
    assert "waiting for 30 s without change" in decision.waiting[0]


def test_an_incomplete_directory_waits_and_says_for_what(tmp_path: Path) -> None:
    drop(tmp_path)
    looked = observe(tmp_path, {}, lambda _: "model-00002 is not there yet", later())
    decision = decide(looked, {}, settle_seconds=3)
    assert decision.intake == ()
    assert decision.waiting == ("tiny@v1: model-00002 is not there yet",)


def test_a_changed_file_starts_another_intake(tmp_path: Path) -> None:
    directory = drop(tmp_path)
    first = decide(observe(tmp_path, {}, complete, later()), {}, settle_seconds=3)
    (directory / "model.safetensors").write_text("other weights")
    second = decide(
        observe(tmp_path, first.handled, complete, later()), first.handled, settle_seconds=3
    )
    assert [item.name for item in second.intake] == ["tiny@v1"]
    assert second.intake[0].fingerprint != first.intake[0].fingerprint


@pytest.mark.parametrize("name", [".tmp/v1", "tiny/.v1.partial"])
def test_hidden_directories_are_copies_in_progress(tmp_path: Path, name: str) -> None:
    drop(tmp_path, name)
    assert observe(tmp_path, {}, complete, later()) == []


@pytest.mark.parametrize("name", ["tiny/v 1", "ti@ny/v1", "tiny/" + "v" * 129])
def test_a_bad_name_is_reported_and_not_taken_in(tmp_path: Path, name: str) -> None:
    drop(tmp_path, name)
    decision = decide(observe(tmp_path, {}, complete, later()), {}, settle_seconds=3)
    assert decision.intake == ()
    assert "is not a" in decision.waiting[0]


def test_one_bad_directory_does_not_hold_up_the_others(tmp_path: Path) -> None:
    drop(tmp_path, "bad name/v1")
    drop(tmp_path, "tiny/v2")
    decision = decide(observe(tmp_path, {}, complete, later()), {}, settle_seconds=3)
    assert [item.name for item in decision.intake] == ["tiny@v2"]


def test_no_drop_folder_is_nothing_to_do(tmp_path: Path) -> None:
    assert observe(tmp_path / "absent", {}, complete, later()) == []


def test_a_removed_directory_is_forgotten(tmp_path: Path) -> None:
    decision = decide([], {"tiny@v1": "abc"}, settle_seconds=3)
    assert decision.handled == {}


dropped = st.builds(
    Dropped,
    name=st.sampled_from(["a@1", "a@2", "b@1"]),
    fingerprint=st.sampled_from(["x", "y"]),
    quiet_seconds=st.floats(-5, 100),
    problem=st.sampled_from([None, "incomplete"]),
)


@given(st.lists(dropped, unique_by=lambda item: item.name), st.floats(0, 30))
def test_every_directory_is_taken_in_or_explained_and_never_twice(
    items: list[Dropped], settle: float
) -> None:
    first = decide(items, {}, settle)
    assert len(first.intake) + len(first.waiting) == len(items)
    second = decide(items, first.handled, settle)
    assert second.intake == ()
    assert second.waiting == first.waiting
