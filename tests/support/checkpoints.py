"""Second versions of a model, made by hand from the first.

Works on the bytes of the safetensors file, so that it needs neither torch nor our own
loader: a test of the loader must not depend on it.
"""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path


def perturbed_copy(source: Path, target: Path, *, tensor: str, elements: int = 64) -> str:
    """Copy checkpoint ``source`` to ``target`` and change one bf16 tensor a little.

    The low mantissa bits of the first ``elements`` numbers are flipped: finite numbers
    stay finite and near, but the digest of the shard changes.

    Returns:
        The file name of the one shard that differs from the source.
    """
    shutil.copytree(source, target)
    index = json.loads((target / "model.safetensors.index.json").read_text())
    shard = str(index["weight_map"][tensor])
    with (target / shard).open("r+b") as file:
        (header_length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(header_length))
        begin, end = header[tensor]["data_offsets"]
        count = min(elements * 2, end - begin)
        file.seek(8 + header_length + begin)
        data = bytearray(file.read(count))
        for low_byte in range(0, count, 2):
            data[low_byte] ^= 0x03
        file.seek(8 + header_length + begin)
        file.write(data)
    return shard


def flip_byte(file: Path, *, offset: int = -1) -> None:
    """Flip the lowest bit of one byte of a file (default: its last), also a read-only one."""
    mode = file.stat().st_mode
    file.chmod(0o644)
    with file.open("r+b") as handle:
        handle.seek(offset, 2 if offset < 0 else 0)
        byte = handle.read(1)
        handle.seek(-1, 1)
        handle.write(bytes([byte[0] ^ 1]))
    file.chmod(mode)
