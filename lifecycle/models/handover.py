"""What one asset leaves on disk for the next: the manifest, between hashing and registration.

Files, and no Dagster IO manager: they are readable without Dagster, and a later run that
selects a single asset finds them.
"""

import os
from pathlib import Path

from lifecycle.models.partitions import VersionKey
from registry.errors import NotFoundError
from registry.manifest import Manifest
from registry.paths import StatePaths


def directory_of(paths: StatePaths, key: VersionKey) -> Path:
    """Return the directory of a version in the drop folder.

    Raises:
        NotFoundError: it is not there.
    """
    directory = paths.intake / key.model / key.version
    if not directory.is_dir():
        raise NotFoundError(
            f"there is no directory for {key} in the drop folder",
            where=str(directory),
            fix="put the model's files there; to work on a registered version, select "
            "promoted_version or deployed_version only",
        )
    return directory


def write_manifest(paths: StatePaths, key: VersionKey, manifest: Manifest) -> Path:
    """Store the manifest for ``registered_version``, replacing an older one at once."""
    target = _manifest_file(paths, key)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_bytes(manifest.canonical())
    temporary.replace(target)
    return target


def read_manifest(paths: StatePaths, key: VersionKey) -> Manifest:
    """Read back what ``write_manifest`` stored.

    Raises:
        NotFoundError: there is none yet.
    """
    source = _manifest_file(paths, key)
    try:
        data = source.read_bytes()
    except FileNotFoundError:
        raise NotFoundError(
            f"{key} has no manifest yet", where=str(source), fix="materialise model_manifest first"
        ) from None
    return Manifest.from_canonical(data)


def _manifest_file(paths: StatePaths, key: VersionKey) -> Path:
    # The leading dot keeps the drop-folder sensor out.
    return paths.intake / ".manifests" / f"{key}.json"
