"""Reads and checks the header of a safetensors file, without torch and without mapping it.

Layout (safetensors format specification): 8 bytes little-endian header length ``n``,
``n`` bytes of JSON, then the data. The library accepts headers that two readers can
understand differently (a key given twice: the last wins); those are refused here,
before anything is placed in memory.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.errors import CheckpointError

MAX_HEADER_BYTES = 32 * 1024 * 1024
MAX_TENSORS = 200_000
MAX_DIMENSIONS = 16

# Bits of one element, by the format's dtype names.
DTYPE_BITS: Mapping[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip

_REDOWNLOAD = "copy the file again from its source and compare its sha256"


class TruncatedError(CheckpointError):
    """The file ends before its header says it does: damaged, or still being copied."""


@dataclass(frozen=True)
class TensorSpec:
    """One tensor: ``start``/``end`` are byte offsets from the start of the data."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def elements(self) -> int:
        """Number of elements (1 for a scalar)."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Header:
    """A checked header.

    Attributes:
        tensors: specification by tensor name, in file order.
        metadata: the ``__metadata__`` strings.
        data_start: offset of the data in the file, in bytes.
        size: size of the whole file, in bytes.
    """

    tensors: Mapping[str, TensorSpec]
    metadata: Mapping[str, str]
    data_start: int
    size: int


def read_header(path: Path) -> Header:
    """Read and check the header of the safetensors file at ``path``.

    Raises:
        TruncatedError: the file is shorter than its header says.
        CheckpointError: it breaks any other rule of the format.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            prefix = file.read(8)
            length = header_length(prefix, size, path.name)
            return parse_header(file.read(length), size, path.name)
    except OSError as error:
        raise CheckpointError(
            f"the file can't be read: {error.strerror}", where=path.name
        ) from error


def header_length(prefix: bytes, size: int, where: str) -> int:
    """Return the JSON length given by the first 8 bytes of a file of ``size`` bytes.

    Raises:
        TruncatedError: the file ends before its header does.
        CheckpointError: the length is over the cap of 32 MiB.
    """
    if len(prefix) < 8:
        raise TruncatedError("the file is too short for a header", where=where, fix=_REDOWNLOAD)
    length: int = struct.unpack("<Q", prefix[:8])[0]
    if not 2 <= length <= MAX_HEADER_BYTES:
        raise CheckpointError(
            f"the header length {length} is not between 2 and {MAX_HEADER_BYTES}",
            where=where,
            fix="this is not a safetensors file, or it is damaged; " + _REDOWNLOAD,
        )
    if 8 + length > size:
        raise TruncatedError("the file ends inside its header", where=where, fix=_REDOWNLOAD)
    return length


def parse_header(text: bytes, size: int, where: str) -> Header:
    """Check the JSON ``text`` of a header against a file of ``size`` bytes.

    Args:
        text: the header without its 8-byte length.
        size: size of the whole file, in bytes.
        where: file name for error texts.

    Raises:
        TruncatedError: the data end before the last tensor does.
        CheckpointError: bad JSON, a key twice, a shape that doesn't match its bytes,
            a gap or overlap between tensors, bytes after the last tensor, too many
            tensors, or an unknown dtype.
    """
    if not text.startswith(b"{"):
        raise _bad("the header does not begin with '{'", where)
    raw = _load_json(text, where)
    metadata = raw.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _bad("__metadata__ is not an object of strings", where)
    if len(raw) > MAX_TENSORS:
        raise _bad(f"the header lists {len(raw)} tensors; the limit is {MAX_TENSORS}", where)
    tensors = {name: _tensor(name, value, where) for name, value in raw.items()}
    data_bytes = _contiguous_end(tensors, where)
    data_start = 8 + len(text)
    if size < data_start + data_bytes:
        raise TruncatedError(
            f"the file has {size} bytes; its header promises {data_start + data_bytes}",
            where=where,
            fix=_REDOWNLOAD,
        )
    if size > data_start + data_bytes:
        raise _bad(f"{size - data_start - data_bytes} bytes follow the last tensor", where)
    return Header(tensors, metadata, data_start, size)


def _load_json(text: bytes, where: str) -> dict[str, Any]:
    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise _bad(f"the header gives the key {_clip(twice)} twice", where)
        return result

    try:
        value = json.loads(text.decode(), object_pairs_hook=no_duplicates)
    except (ValueError, RecursionError) as error:
        raise _bad("the header is not valid JSON", where) from error
    if not isinstance(value, dict):
        raise _bad("the header is not a JSON object", where)
    return value


def _tensor(name: str, value: object, where: str) -> TensorSpec:
    label = f"tensor {_clip(name)}"
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise _bad(f"{label}: expected exactly dtype, shape and data_offsets", where)
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise _bad(f"{label}: unknown dtype {_clip(str(dtype))}", where)
    if not _naturals(shape) or len(shape) > MAX_DIMENSIONS:
        raise _bad(f"{label}: the shape is not a list of sizes", where)
    if not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _bad(f"{label}: data_offsets is not [start, end]", where)
    spec = TensorSpec(dtype, tuple(shape), offsets[0], offsets[1])
    bits = spec.elements * DTYPE_BITS[dtype]
    if bits != 8 * (spec.end - spec.start):
        raise _bad(
            f"{label}: {dtype} of shape {_clip(str(shape))} needs {(bits + 7) // 8} bytes, "
            f"its offsets give {spec.end - spec.start}",
            where,
        )
    return spec


def _naturals(value: object) -> bool:
    return isinstance(value, list) and all(
        type(item) is int and 0 <= item < 2**63 for item in value
    )


def _contiguous_end(tensors: Mapping[str, TensorSpec], where: str) -> int:
    """Return where the data end; tensors must follow one another from 0 without gaps."""
    position = 0
    for name, spec in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].end)):
        if spec.start != position:
            problem = "overlaps the one before it" if spec.start < position else "leaves a gap"
            raise _bad(f"tensor {_clip(name)} at byte {spec.start} {problem}", where)
        position = spec.end
    return position


def _bad(what: str, where: str) -> CheckpointError:
    return CheckpointError(what, where=where, fix="re-export the checkpoint, or get a good copy")


def _clip(text: str) -> str:
    """Quote attacker-chosen text for an error message: escaped and short."""
    return repr(text if len(text) <= 80 else text[:77] + "...")
