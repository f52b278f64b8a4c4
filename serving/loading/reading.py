"""Read a checkpoint's files once, hashing on the way, and give out only proven bytes.

Each file is read into memory of our own and hashed in that same pass. Memory mapping
would be shorter, but then the weights *are* the file: a later change of the file would
reach a model that was verified before. What the digest was computed over is what runs.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from registry.errors import CheckpointError, IntegrityError
from registry.progress import Meter
from registry.safetensors_header import header_length, parse_header
from serving.engine.messages import FileDigest

_CHUNK_BYTES = 4 * 1024 * 1024
# hashlib and read() both release the GIL; more readers than this only fight for the disk.
_MAX_READERS = 4

_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}


@dataclass(frozen=True)
class CheckpointBytes:
    """A checkpoint in memory."""

    files: tuple[FileDigest, ...]
    """What was read, as hashed while reading."""
    tensors: dict[str, torch.Tensor]
    """By name, on the target device, in the stored dtype."""
    documents: dict[str, bytes]
    """All other files by relative path: configuration, tokenizer, template."""


def read_checkpoint(
    directory: Path,
    expected: tuple[FileDigest, ...],
    device: torch.device,
    progress: Callable[[int, int], None] | None = None,
) -> CheckpointBytes:
    """Read the files of a manifest and prove that they are what it says.

    Args:
        directory: the model directory.
        expected: the manifest's files; only these are read.
        device: where the tensors go; a shard goes there when its digest has been compared.
        progress: told (bytes done, bytes in all), a few times a second, from any thread.

    Raises:
        IntegrityError: a file's bytes are not those of the manifest.
        CheckpointError: a file is missing, can't be read, or is no safetensors file.
    """
    total = sum(file.size for file in expected)

    def tell(_label: str, done: int, all_bytes: int) -> None:
        if progress is not None:
            progress(done, all_bytes)

    meter = Meter(tell, "read", total)

    def read(file: FileDigest) -> dict[str, torch.Tensor] | bytes:
        data = read_verified(directory, file, meter)
        if file.path.endswith(".safetensors"):
            return {name: t.to(device) for name, t in tensors_of(data, file.path).items()}
        return data.numpy().tobytes()

    tensors: dict[str, torch.Tensor] = {}
    documents: dict[str, bytes] = {}
    readers = min(_MAX_READERS, os.cpu_count() or 1)
    pool = ThreadPoolExecutor(readers, thread_name_prefix="read")
    try:
        for file, content in zip(expected, pool.map(read, expected), strict=True):
            if isinstance(content, bytes):
                documents[file.path] = content
                continue
            if twice := tensors.keys() & content.keys():
                name = min(twice)
                raise CheckpointError(f"tensor {name} is in two shards", where=file.path)
            tensors.update(content)
    finally:
        pool.shutdown(cancel_futures=True)
    return CheckpointBytes(files=expected, tensors=tensors, documents=documents)


def read_verified(directory: Path, file: FileDigest, meter: Meter) -> torch.Tensor:
    """Read one file into memory and compare it with its digest: uint8 [size].

    Raises:
        IntegrityError: size or sha256 differ.
        CheckpointError: the file can't be read.
    """
    buffer = torch.empty(file.size, dtype=torch.uint8)
    view = memoryview(buffer.numpy().data)
    digest = hashlib.sha256()
    done = 0
    try:
        with (directory / file.path).open("rb", buffering=0) as source:
            stored = os.fstat(source.fileno()).st_size
            if stored != file.size:
                raise _altered(file, f"has {stored} bytes, the manifest says {file.size}")
            while count := source.readinto(view[done : done + _CHUNK_BYTES]):
                digest.update(view[done : done + count])
                done += count
                meter.add(count)
    except OSError as error:
        raise CheckpointError(
            f"the file can't be read: {error.strerror}",
            where=file.path,
            fix="restore the model directory from the registry",
        ) from error
    if digest.hexdigest() != file.sha256:
        raise _altered(file, f"has sha256 {digest.hexdigest()}, the manifest says {file.sha256}")
    return buffer


def tensors_of(data: torch.Tensor, where: str) -> dict[str, torch.Tensor]:
    """The tensors of one safetensors file that is in memory: views into ``data``.

    Raises:
        CheckpointError: the file breaks the format, or has a dtype that can't be served.
    """
    size = data.numel()
    prefix = 8
    length = header_length(data[:prefix].numpy().tobytes(), size, where)
    header = parse_header(data[prefix : prefix + length].numpy().tobytes(), size, where)
    tensors = {}
    for name, spec in header.tensors.items():
        dtype = _DTYPES.get(spec.dtype)
        if dtype is None:
            raise CheckpointError(
                f"tensor {name} has dtype {spec.dtype}, which can't be served",
                where=where,
                fix="export the checkpoint as BF16, F16 or F32",
            )
        raw = data[header.data_start + spec.start : header.data_start + spec.end]
        if raw.storage_offset() % dtype.itemsize:
            raw = raw.clone()  # the format allows it, a typed view doesn't
        tensors[name] = raw.view(dtype).view(spec.shape)
    return tensors


def _altered(file: FileDigest, how: str) -> IntegrityError:
    return IntegrityError(
        f"the file is not the one that was registered: it {how}",
        where=file.path,
        fix="restore it from a good copy, or serve an earlier version",
    )
