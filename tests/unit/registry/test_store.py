"""Content: what goes into the store comes out of it unchanged, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from registry.errors import ConflictError, InputError, IntegrityError, NotFoundError
from registry.store import IngestResult, Registry, Version
from tests.support.checkpoints import flip_byte
from tests.support.plain_checkpoint import SHARDS, write_checkpoint
from tests.support.registered import add_version

Add = Callable[[str], Version]


def blob_of(registry: Registry, version: Version, path: str) -> Path:
    digest = next(e.sha256 for e in version.manifest.files if e.path == path)
    return registry.root / "blobs" / "sha256" / digest[:2] / digest


def test_a_view_holds_the_files_that_were_added(registry: Registry, checkpoint: Path) -> None:
    version = add_version(registry, checkpoint, "tiny@v1")
    view = registry.view("tiny@v1")
    assert view == registry.view(version.digest) == registry.root / "views" / version.digest
    assert {p.name: p.read_bytes() for p in view.iterdir()} == {
        p.name: p.read_bytes() for p in checkpoint.iterdir()
    }
    assert [p.name for p in (registry.root / "views").iterdir()] == [version.digest]


def test_files_that_versions_share_are_stored_once(registry: Registry, tmp_path: Path) -> None:
    one = write_checkpoint(tmp_path / "one", fill=1)
    two = write_checkpoint(tmp_path / "two", fill=2)
    add_version(registry, one, "tiny@v1")
    manifest = registry.build_manifest(two)
    written = sum(entry.size for entry in manifest.files if entry.path in SHARDS)
    assert registry.ingest(two, manifest) == IngestResult(2, 4, written)
    assert registry.ingest(two, manifest) == IngestResult(0, 6, 0)


def test_stored_files_are_read_only_and_nothing_is_left_over(registry: Registry, add: Add) -> None:
    version = add("tiny@v1")
    for entry in version.manifest.files:
        assert blob_of(registry, version, entry.path).stat().st_mode & 0o777 == 0o444
    assert list((registry.root / "blobs" / "incoming").iterdir()) == []


def test_a_file_that_changes_after_hashing_is_not_stored(
    registry: Registry, checkpoint: Path
) -> None:
    manifest = registry.build_manifest(checkpoint)
    flip_byte(checkpoint / SHARDS[0])
    with pytest.raises(IntegrityError) as caught:
        registry.ingest(checkpoint, manifest)
    assert caught.value.where == SHARDS[0]
    with pytest.raises(ConflictError, match="not in the store"):
        registry.register(manifest, model="tiny", version="v1", actor="t", source="t")
    assert registry.versions() == []


def test_a_flipped_byte_is_found_named_logged_once_and_mended(
    registry: Registry, checkpoint: Path
) -> None:
    version = add_version(registry, checkpoint, "tiny@v1")
    registry.view("tiny@v1")
    assert registry.check_integrity("tiny@v1") == []
    flip_byte(blob_of(registry, version, SHARDS[1]))
    for _ in range(2):
        (problem,) = registry.check_integrity("tiny@v1")
        assert problem.startswith(f"{SHARDS[1]}: stored bytes are sha256 ")
    kinds = [event.kind for event in registry.audit.events()]
    assert kinds == ["version.registered", "blob.damaged"]

    assert registry.ingest(checkpoint, version.manifest).new_blobs == 1
    assert registry.check_integrity("tiny@v1") == []
    view = registry.view("tiny@v1")
    assert (view / SHARDS[1]).read_bytes() == (checkpoint / SHARDS[1]).read_bytes()
    assert [event.kind for event in registry.audit.events()][2:] == ["blob.restored"]


def test_a_missing_file_is_named(registry: Registry, add: Add) -> None:
    version = add("tiny@v1")
    blob_of(registry, version, SHARDS[0]).unlink()
    (problem,) = registry.check_integrity("tiny@v1")
    assert problem.startswith(SHARDS[0]) and "missing" in problem
    with pytest.raises(IntegrityError):
        registry.view("tiny@v1")


def test_registering_again_changes_nothing(registry: Registry, checkpoint: Path) -> None:
    first = add_version(registry, checkpoint, "tiny@v1")
    assert add_version(registry, checkpoint, "tiny@v1") == first
    assert registry.versions() == [first]
    assert registry.audit.head().seq == 1


def test_a_name_never_changes_its_content(registry: Registry, tmp_path: Path, add: Add) -> None:
    first = add("tiny@v1")
    other = write_checkpoint(tmp_path / "other", fill=99)
    with pytest.raises(ConflictError, match="other content"):
        add_version(registry, other, "tiny@v1")
    with pytest.raises(ConflictError, match="already registered as tiny@v1"):
        add_version(registry, tmp_path / "tiny@v1", "tiny@v2")
    assert registry.versions() == [first]


def test_references(registry: Registry, add: Add) -> None:
    one, two = add("tiny@v1"), add("tiny@v2")
    for ref in ("tiny@v1", one.digest, one.short, one.digest[:20]):
        assert registry.version(ref) == one
    assert registry.versions("tiny") == [one, two]
    assert registry.versions("other") == []
    with pytest.raises(NotFoundError):
        registry.version("tiny@v3")
    with pytest.raises(NotFoundError):
        registry.version("0" * 12)
    for bad in ("tiny", one.digest[:11], one.digest.upper(), "a b@c", "@v1", "tiny@", "../x@y"):
        with pytest.raises(InputError):
            registry.version(bad)
