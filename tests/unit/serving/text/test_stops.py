from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.text.stops import StopMatcher

texts = st.text(alphabet="abc", max_size=30)
stop_lists = st.lists(st.text(alphabet="abc", min_size=1, max_size=4), max_size=4)


def run(stops: list[str], pieces: list[str]) -> tuple[list[str], bool]:
    matcher = StopMatcher(stops)
    shown = [matcher.push(piece) for piece in pieces]
    shown.append(matcher.flush())
    return shown, matcher.stopped


def cut_at_the_first_stop(text: str, stops: list[str]) -> tuple[str, bool]:
    """The specification: end at the first place where some stop string has just ended."""
    for end in range(1, len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            return text[: end - max(map(len, ended))], True
    return text, False


@given(text=texts, stops=stop_lists, cuts=st.lists(st.integers(0, 30), max_size=8))
def test_the_result_does_not_depend_on_how_the_text_is_cut(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    shown, stopped = run(stops, pieces)
    assert ("".join(shown), stopped) == cut_at_the_first_stop(text, stops)


@given(text=texts, stops=stop_lists)
def test_no_more_is_held_back_than_could_be_a_beginning(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    shown = ""
    for index, character in enumerate(text):
        shown += matcher.push(character)
        if not matcher.stopped:
            held = text[len(shown) : index + 1]
            assert not held or any(stop.startswith(held) for stop in stops)
            assert len(held) <= max(map(len, stops), default=1) - 1


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(["a", ""])
