from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from registry.errors import CheckpointError
from registry.safetensors_header import (
    MAX_HEADER_BYTES,
    TruncatedError,
    header_length,
    parse_header,
    read_header,
)
from tests.support.plain_checkpoint import raw_file, shard_bytes

GOOD = shard_bytes({"a": [2, 3], "b": [4]})


def parse(raw: bytes, size: int | None = None) -> Any:
    size = len(raw) if size is None else size
    length = header_length(raw[:8], size, "x.safetensors")
    return parse_header(raw[8 : 8 + length], size, "x.safetensors")


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
            lambda name: name != "__metadata__"
        ),
        st.tuples(
            st.sampled_from(["float32", "float16", "int8", "int64", "bool"]),
            st.lists(st.integers(0, 4), max_size=3),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_reads_what_the_safetensors_library_writes(wanted: dict[str, Any]) -> None:
    arrays = {name: np.zeros(shape, dtype) for name, (dtype, shape) in wanted.items()}
    header = parse(save(arrays))
    assert {name: spec.shape for name, spec in header.tensors.items()} == {
        name: array.shape for name, array in arrays.items()
    }
    assert sum(spec.end - spec.start for spec in header.tensors.values()) == sum(
        array.nbytes for array in arrays.values()
    )


def tensor(shape: list[Any], start: int, end: int, dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (raw_file(b'{"a":1,"a":2}'), "'a' twice"),
        (
            raw_file(
                b'{"a":{"dtype":"U8","dtype":"I8","shape":[0],"data_offsets":[0,0]}}',
            ),
            "'dtype' twice",
        ),
        (raw_file({"a": tensor([3], 0, 2)}, b"12"), "needs 3 bytes, its offsets give 2"),
        (raw_file({"a": tensor([2], 1, 3)}, b"123"), "leaves a gap"),
        (raw_file({"a": tensor([2], 0, 2), "b": tensor([2], 1, 3)}, b"123"), "overlaps"),
        (raw_file({"a": tensor([2], 0, 2)}, b"12345"), "3 bytes follow the last tensor"),
        (raw_file({"a": tensor([2], 0, 2, "PICKLE")}, b"12"), "unknown dtype"),
        (raw_file({"a": tensor([-2], 0, 2)}, b"12"), "not a list of sizes"),
        (raw_file({"a": tensor([True, 2], 0, 2)}, b"12"), "not a list of sizes"),
        (raw_file({"a": tensor([2**70, 2**70], 0, 2)}, b"12"), "not a list of sizes"),
        (raw_file({"a": tensor([3], 0, 1, "F4")}, b"1"), "needs 2 bytes"),
        (raw_file({"a": {**tensor([2], 0, 2), "code": "x"}}, b"12"), "exactly dtype"),
        (raw_file({"__metadata__": {"a": 1}}), "__metadata__"),
        (raw_file(b" {}"), "begin with '{'"),
        (raw_file(b"{" * 5000), "not valid JSON"),
        (raw_file(b'{"a":\xff}'), "not valid JSON"),
        (struct.pack("<Q", MAX_HEADER_BYTES + 1) + b"{}", "header length"),
    ],
)
def test_a_header_that_lies_is_refused_by_what_is_wrong(raw: bytes, says: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        parse(raw)
    assert says in str(caught.value)
    assert not isinstance(caught.value, TruncatedError)
    assert caught.value.where == "x.safetensors"


@given(st.integers(0, len(GOOD) - 1))
def test_a_file_cut_anywhere_is_truncated_and_nothing_else(length: int) -> None:
    with pytest.raises(TruncatedError):
        parse(GOOD[:length])


@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=4))
def test_any_damage_is_either_harmless_or_a_checkpoint_error(
    changes: list[tuple[int, int]],
) -> None:
    raw = bytearray(GOOD)
    for position, value in changes:
        raw[position] = value
    try:
        header = parse(bytes(raw))
    except CheckpointError:
        return
    assert max(spec.end for spec in header.tensors.values()) == len(raw) - header.data_start


def test_an_error_does_not_echo_a_long_name(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(raw_file({"x" * 100_000: tensor([1], 0, 9)}, b"123456789"))
    with pytest.raises(CheckpointError) as caught:
        read_header(path)
    assert len(str(caught.value)) < 400
