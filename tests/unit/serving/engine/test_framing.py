from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engine.framing import FrameBuffer, FramingError, decode_to_engine, encode_frame
from serving.engine.messages import MAX_FRAME_BYTES, Cancel, Generate, SamplingParams

MESSAGES = [
    Cancel("a"),
    Generate("b", (1, 2, 3), SamplingParams(max_tokens=4, temperature=0.5, seed=2**63 - 1)),
    Cancel(""),
]


@given(cuts=st.lists(st.integers(0, 200), max_size=20))
def test_messages_survive_any_cut_of_the_stream(cuts: list[int]) -> None:
    stream = b"".join(encode_frame(message) for message in MESSAGES)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    buffer = FrameBuffer()
    received = [
        decode_to_engine(payload)
        for begin, end in itertools.pairwise(edges)
        for payload in buffer.feed(stream[begin:end])
    ]
    assert received == MESSAGES


def test_an_over_long_frame_is_refused_by_its_length_alone() -> None:
    with pytest.raises(FramingError, match="exceeds"):
        list(FrameBuffer().feed(struct.pack(">I", MAX_FRAME_BYTES + 1)))


@given(payload=st.binary(max_size=60))
def test_bytes_that_are_no_message_are_a_framing_error_and_nothing_else(payload: bytes) -> None:
    try:
        decode_to_engine(payload)
    except FramingError:
        return
    # Whatever decodes must encode to a message again.
