"""Gate ``integrity``: the stored bytes are still those of the manifest."""

from lifecycle.gates.outcome import GateOutcome
from registry.progress import Progress
from registry.store import Registry, Version

NAME = "integrity"


def evaluate(registry: Registry, version: Version, progress: Progress | None = None) -> GateOutcome:
    """Hash every stored file of ``version`` again and compare with its manifest."""
    problems = registry.check_integrity(version.digest, progress=progress)
    files = version.manifest.files
    numbers = {
        "files": len(files),
        "bytes": sum(entry.size for entry in files),
        "problems": len(problems),
    }
    if problems:
        return GateOutcome(
            "fail",
            f"{len(problems)} of {len(files)} stored files are not what was registered",
            numbers,
            tuple(problems),
        )
    return GateOutcome("pass", f"all {len(files)} stored files have their digest", numbers)
