"""What a swap did, for whoever asked for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from registry.store import Version


@dataclass(frozen=True)
class SwapReport:
    """What a swap did."""

    model: str
    version: str
    digest: str
    from_version: str
    from_digest: str
    changed: bool = False
    """False when that version was being served already."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Phases of the load, then ``drain``: from the flip until the old engine was gone."""
    cut_requests: int = 0
    """Requests still running on the old version at the drain deadline; they failed."""
    released_bytes: int = 0
    """Resident memory of the old engine just before it exited."""
    old_engine_gone: bool = True
    """Whether the old process has left the process table, and its memory with it."""

    @classmethod
    def between(cls, version: Version, old: Version) -> SwapReport:
        """The report of a swap from ``old`` to ``version`` that had nothing to do."""
        return cls(
            model=version.model,
            version=version.version,
            digest=version.digest,
            from_version=old.version,
            from_digest=old.digest,
        )
