"""The dynamic section of a shared library, without binutils.

Reads only the headers it needs, so that a library of a gigabyte costs a few pages. Layout:
System V ABI, "ELF-64 Object File Format"; tags: ``/usr/include/elf.h``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 14, 15, 29
_MAX_DYNAMIC = 1 << 20
_MAX_NAME = 4096


@dataclass(frozen=True)
class DynamicSection:
    """What the dynamic linker is told.

    Attributes:
        soname: the name that others link to, "" if it has none.
        needed: names of the libraries that it links to.
        rpath: search path before LD_LIBRARY_PATH.
        runpath: search path after LD_LIBRARY_PATH; where it is given, ``rpath`` is ignored.
    """

    soname: str
    needed: tuple[str, ...]
    rpath: str
    runpath: str


def read_dynamic(path: Path) -> DynamicSection | None:
    """Read it; None if the file is no 64-bit little-endian ELF with a dynamic section.

    Raises:
        OSError: the file can't be read.
    """
    with path.open("rb") as stream:
        header = stream.read(64)
        if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
            return None
        (table,) = struct.unpack_from("<Q", header, 32)
        entry_size, count = struct.unpack_from("<HH", header, 54)
        loads: list[tuple[int, int, int]] = []
        dynamic = b""
        for index in range(count):
            entry = _at(stream, table + index * entry_size, 56)
            if len(entry) < 56:
                return None
            kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", entry)
            if kind == _PT_LOAD:
                loads.append((address, size, offset))
            elif kind == _PT_DYNAMIC:
                dynamic = _at(stream, offset, min(size, _MAX_DYNAMIC))
        tags = list(_tags(dynamic))
        strings = next((value for tag, value in tags if tag == _DT_STRTAB), None)
        base = None if strings is None else _file_offset(strings, loads)
        if base is None:
            return None

        def names(wanted: int) -> tuple[str, ...]:
            found = (value for tag, value in tags if tag == wanted)
            return tuple(_name(stream, base + value) for value in found)

        return DynamicSection(
            soname="".join(names(_DT_SONAME)[:1]),
            needed=names(_DT_NEEDED),
            rpath="".join(names(_DT_RPATH)[:1]),
            runpath="".join(names(_DT_RUNPATH)[:1]),
        )


def _tags(dynamic: bytes) -> Iterator[tuple[int, int]]:
    for tag, value in struct.iter_unpack("<qQ", dynamic[: len(dynamic) // 16 * 16]):
        if tag == _DT_NULL:
            return
        yield tag, value


def _file_offset(address: int, loads: list[tuple[int, int, int]]) -> int | None:
    for start, size, offset in loads:
        if start <= address < start + size:
            return address - start + offset
    return None


def _at(stream: BinaryIO, offset: int, size: int) -> bytes:
    stream.seek(offset)
    return stream.read(size)


def _name(stream: BinaryIO, offset: int) -> str:
    return _at(stream, offset, _MAX_NAME).partition(b"\0")[0].decode(errors="replace")
