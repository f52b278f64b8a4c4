from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from registry.checkpoint_files import TEMPLATE
from registry.errors import CheckpointError, InputError
from registry.manifest import FileEntry, Manifest
from registry.store import Registry

A, B = "a" * 64, "b" * 64


def test_identity_does_not_depend_on_the_order_of_files() -> None:
    entries = (FileEntry("b", 1, B), FileEntry("a", 1, A))
    assert Manifest(entries, A).digest == Manifest(entries[::-1], A).digest


@pytest.mark.parametrize(
    "other",
    [
        Manifest((FileEntry("a", 1, B),), A),
        Manifest((FileEntry("a", 2, A),), A),
        Manifest((FileEntry("c", 1, A),), A),
        Manifest((FileEntry("a", 1, A),), B),
        Manifest((FileEntry("a", 1, A),), A, A),
        Manifest((FileEntry("a", 1, A),), A, None, A),
    ],
)
def test_identity_depends_on_everything_else(other: Manifest) -> None:
    assert Manifest((FileEntry("a", 1, A),), A).digest != other.digest


def test_the_canonical_text_reads_back_as_the_same_manifest() -> None:
    manifest = Manifest((FileEntry("a/ü", 1, A),), A, B)
    assert Manifest.from_canonical(manifest.canonical()) == manifest
    assert hashlib.sha256(manifest.canonical()).hexdigest() == manifest.digest
    with pytest.raises(InputError):
        Manifest.from_canonical(manifest.canonical() + b" ")
    with pytest.raises(InputError):
        Manifest.from_canonical(b'{"files":[]}')


@pytest.mark.parametrize("path", ["", "/a", "a/../b", "a//b", "a\\b", "a\nb", "./a", "x" * 513])
def test_a_path_that_leaves_its_directory_is_refused(path: str) -> None:
    with pytest.raises(CheckpointError):
        FileEntry(path, 1, A)


def test_the_chat_template_has_one_digest_wherever_it_is_kept(
    registry: Registry, checkpoint: Path
) -> None:
    embedded = registry.build_manifest(checkpoint)
    (checkpoint / TEMPLATE).write_text("{{ x }}")
    (checkpoint / "tokenizer_config.json").write_text("{}")
    beside = registry.build_manifest(checkpoint)
    assert embedded.chat_template_digest == beside.chat_template_digest
    assert embedded.chat_template_digest == hashlib.sha256(b"{{ x }}").hexdigest()
    assert embedded.digest != beside.digest


def test_progress_ends_at_the_total(registry: Registry, checkpoint: Path) -> None:
    seen: list[tuple[int, int]] = []
    manifest = registry.build_manifest(
        checkpoint, progress=lambda label, done, total: seen.append((done, total))
    )
    assert seen[-1] == (manifest.size, manifest.size)
    assert seen == sorted(seen)
