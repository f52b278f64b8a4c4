"""Which files a model directory may hold: data that is parsed, never code that runs.

Everything not known to be harmless is refused, with the reason and what to do.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path, PurePosixPath

from registry.errors import CheckpointError

# Formats that run code when loaded (pickle), or that are code.
_PICKLE = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".npy", ".npz", ".dill"}
_CODE = {".py", ".pyc", ".pyd", ".so", ".dll", ".dylib", ".sh", ".exe", ".js", ".ipynb", ".whl"}
_OTHER_WEIGHTS = {".h5", ".hdf5", ".keras", ".onnx", ".msgpack", ".pb", ".tflite", ".ot"}
_ALLOWED = {
    ".safetensors", ".json", ".jinja", ".txt", ".md", ".model", ".vocab", ".tiktoken",
    ".sig", ".pdf", ".png", ".jpg", ".jpeg", ".svg", "",
}  # fmt: skip

MAX_FILES = 10_000
MAX_PATH_CHARS = 512

# What copy and download tools call a file that they are still writing.
_IN_PROGRESS = re.compile(
    r"\.(part|partial|tmp|incomplete|crdownload|aria2|download)$|^\..+\.[A-Za-z0-9]{6}$",
    re.IGNORECASE,
)


def in_progress(name: str) -> bool:
    """Tell whether a file of this name is one that a copy tool has not finished."""
    return _IN_PROGRESS.search(name) is not None


def check_relative_path(path: str, *, where: str) -> str:
    """Return ``path`` if it is a plain relative POSIX path that stays in its directory.

    Raises:
        CheckpointError: absolute, ``..``, empty parts, backslash, control characters,
            not valid UTF-8, or longer than 512 characters; ``where`` is the file that
            contains the path.
    """
    parts = path.split("/")
    plain = (
        0 < len(path) <= MAX_PATH_CHARS
        and path.isprintable()
        and "\\" not in path
        and not any(part in ("", ".", "..") for part in parts)
    )
    if not plain:
        shown = ascii(path[:80])
        raise CheckpointError(
            f"the path {shown} is not a plain relative path",
            where=where,
            fix="only files inside the model directory can be part of it",
        )
    return path


def list_files(directory: Path) -> list[str]:
    """Return the relative POSIX paths of all files under ``directory``, sorted.

    Raises:
        CheckpointError: the directory can't be read, is empty, or holds something that
            is refused: a pickle or code file, an executable, a hidden file, a link that
            leaves the directory, a device, a file of unknown kind.
    """
    root = directory.resolve()
    if not root.is_dir():
        raise CheckpointError(
            "this is not a directory", where=str(directory), fix="give a model directory"
        )
    found: list[str] = []
    for folder, folders, names in os.walk(root, onerror=_unreadable):
        base = Path(folder).relative_to(root)
        for name in folders:
            _check_folder(Path(folder, name), (base / name).as_posix())
        for name in names:
            path = (base / name).as_posix()
            _check_file(root, Path(folder, name), path)
            found.append(path)
        if len(found) > MAX_FILES:
            raise CheckpointError(f"more than {MAX_FILES} files", where=str(directory))
    if not found:
        raise CheckpointError(
            "the directory is empty", where=str(directory), fix="copy the checkpoint into it"
        )
    return sorted(found)


def _unreadable(error: OSError) -> None:
    raise CheckpointError(
        f"the directory can't be read: {error.strerror}", where=str(error.filename)
    ) from error


def _check_folder(path: Path, name: str) -> None:
    check_relative_path(name, where=name)
    if path.is_symlink():
        raise CheckpointError("a folder is a symbolic link", where=name, fix="copy its files")
    if path.name.startswith("."):
        raise CheckpointError("a hidden folder", where=name, fix=f"remove it: rm -r {name}")


def _check_file(root: Path, path: Path, name: str) -> None:
    check_relative_path(name, where=name)
    suffix = PurePosixPath(name).suffix.lower()
    if path.name.startswith("."):
        raise CheckpointError("a hidden file", where=name, fix="remove it from the directory")
    if path.is_symlink() and not path.resolve().is_relative_to(root):
        raise CheckpointError(
            "a symbolic link leaves the model directory",
            where=name,
            fix="copy the file itself into the directory",
        )
    status = path.stat() if path.exists() else path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError("not a regular file", where=name, fix="remove it")
    if suffix in _PICKLE:
        raise CheckpointError(
            f"a {suffix} file can run code when it is loaded",
            where=name,
            fix="convert the weights to safetensors and remove it",
        )
    if suffix in _CODE or status.st_mode & 0o111:
        kind = f"a {suffix} file" if suffix in _CODE else "a file with the executable bit"
        raise CheckpointError(
            f"{kind} has no place among weights",
            where=name,
            fix="remove it (only architectures built into transformers are loaded)"
            if suffix in _CODE
            else f"chmod a-x {name}, or remove it",
        )
    if suffix in _OTHER_WEIGHTS or suffix not in _ALLOWED:
        raise CheckpointError(
            f"a file of kind {suffix[:20]!a} is not part of a safetensors checkpoint",
            where=name,
            fix="remove it from the directory",
        )
