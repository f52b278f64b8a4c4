"""A version's identity: the list of its files and the sha256 of that list."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from registry.canonical import MAX_INTEGER, Json, canonical
from registry.checkpoint_config import read_json
from registry.checkpoint_files import TEMPLATE
from registry.errors import CheckpointError, InputError
from registry.safe_files import check_relative_path

FORMAT = "ironworks.manifest.v1"
_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, order=True)
class FileEntry:
    """One file: relative POSIX path, size in bytes, sha256 in hex."""

    path: str
    size: int
    sha256: str

    def __post_init__(self) -> None:
        check_relative_path(self.path, where="manifest")
        if not 0 <= self.size <= MAX_INTEGER or not _HEX.fullmatch(self.sha256):
            raise InputError("a file's size or sha256 is malformed", where=f"manifest: {self.path}")


@dataclass(frozen=True)
class Manifest:
    """Everything that makes one version of a model, and nothing else.

    Args:
        files: the entries; kept sorted by path, no path twice.
        config_digest: sha256 of config.json.
        tokenizer_digest: sha256 of tokenizer.json, if there is one.
        chat_template_digest: sha256 of the template's text, wherever it is kept.

    Raises:
        InputError: no files, or a path twice.
    """

    files: tuple[FileEntry, ...]
    config_digest: str
    tokenizer_digest: str | None = None
    chat_template_digest: str | None = None
    digest: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        files = tuple(sorted(self.files))
        if not files or len({entry.path for entry in files}) != len(files):
            raise InputError("the list of files is empty or names a path twice", where="manifest")
        object.__setattr__(self, "files", files)
        object.__setattr__(self, "digest", hashlib.sha256(self.canonical()).hexdigest())

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(entry.size for entry in self.files)

    def canonical(self) -> bytes:
        """Return the canonical JSON text whose sha256 is ``digest``."""
        files: list[Json] = [
            {"path": entry.path, "size": entry.size, "sha256": entry.sha256} for entry in self.files
        ]
        return canonical(
            {
                "format": FORMAT,
                "files": files,
                "config_digest": self.config_digest,
                "tokenizer_digest": self.tokenizer_digest,
                "chat_template_digest": self.chat_template_digest,
            }
        )

    @classmethod
    def from_canonical(cls, text: bytes) -> Manifest:
        """Parse what ``canonical`` returned.

        Raises:
            InputError: it is not a manifest, or not in canonical form.
        """
        try:
            raw: Mapping[str, Any] = json.loads(text)
            files = tuple(FileEntry(**entry) for entry in raw["files"])
            manifest = cls(
                files, raw["config_digest"], raw["tokenizer_digest"], raw["chat_template_digest"]
            )
        except (ValueError, KeyError, TypeError) as error:
            raise InputError("this is not a manifest", where="manifest") from error
        if manifest.canonical() != text:
            raise InputError("the manifest is not in canonical form", where="manifest")
        return manifest


def manifest_of(directory: Path, entries: Iterable[FileEntry]) -> Manifest:
    """Build the manifest of ``directory`` from its hashed files.

    Raises:
        CheckpointError: there is no config.json, or tokenizer_config.json is unreadable.
    """
    files = tuple(entries)
    digests = {entry.path: entry.sha256 for entry in files}
    if "config.json" not in digests:
        raise CheckpointError("config.json is missing", where=str(directory))
    template = digests.get(TEMPLATE)
    if template is None and "tokenizer_config.json" in digests:
        template = _embedded_template_digest(directory)
    return Manifest(files, digests["config.json"], digests.get("tokenizer.json"), template)


def _embedded_template_digest(directory: Path) -> str | None:
    settings = read_json(directory / "tokenizer_config.json")
    template = settings.get("chat_template") if isinstance(settings, dict) else None
    if not template:
        return None
    text = template.encode() if isinstance(template, str) else canonical(template)
    return hashlib.sha256(text).hexdigest()
