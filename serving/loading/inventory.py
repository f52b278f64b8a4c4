"""Which files a model directory has, and which of them a load will read."""

from __future__ import annotations

import hashlib
from pathlib import Path

from registry.checkpoint_files import check_checkpoint
from registry.errors import CheckpointError
from serving.engine.messages import FileDigest


def check_files(directory: Path, expected: tuple[FileDigest, ...]) -> None:
    """Check a directory's headers and files, and that the manifest has all of them.

    Raises:
        CheckpointError: as :func:`registry.checkpoint_files.check_checkpoint`, or a weight
            file that the manifest does not name.
    """
    facts = check_checkpoint(directory)
    named = {file.path for file in expected}
    if strangers := sorted(set(facts.shards) - named):
        raise CheckpointError(
            "the file is not in the manifest",
            where=strangers[0],
            fix="load the registry's view of the version, not a working directory",
        )


def digests_of(directory: Path) -> tuple[FileDigest, ...]:
    """The manifest of a directory as it is now, for a model that no registry knows yet.

    Raises:
        CheckpointError: as :func:`registry.checkpoint_files.check_checkpoint`.
    """
    facts = check_checkpoint(directory)
    return tuple(_digest(directory, path) for path in facts.files)


def _digest(directory: Path, path: str) -> FileDigest:
    with (directory / path).open("rb") as source:
        sha256 = hashlib.file_digest(source, "sha256").hexdigest()
        return FileDigest(path=path, size=source.tell(), sha256=sha256)
