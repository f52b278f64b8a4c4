"""The report of a verification: what was found, as table, JSON and exit code."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lifecycle.host.checks.outcome import Outcome, Status

_ORDER: tuple[Status, ...] = ("fail", "warn", "unknown", "pass")
_EXIT_CODES = {"fail": 2, "warn": 1}


@dataclass(frozen=True)
class Finding:
    """One check of one group, and its outcome."""

    group: str
    check: str
    outcome: Outcome

    @property
    def name(self) -> str:
        """Unique in a report."""
        return f"{self.group}.{self.check}"

    @property
    def is_problem(self) -> bool:
        """Whether somebody should do something."""
        return self.outcome.status in ("warn", "fail")

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {"group": self.group, "check": self.check, **asdict(self.outcome)}


@dataclass(frozen=True)
class GroupReport:
    """The findings of one group.

    Attributes:
        note: why there are none: ``no GPU``, or ``nothing to check here``; "" if there are.
    """

    name: str
    about: str
    findings: tuple[Finding, ...] = ()
    note: str = ""

    @property
    def status(self) -> Status:
        """The worst of its findings; ``pass`` for a group that does not apply."""
        return worst(finding.outcome.status for finding in self.findings)


@dataclass(frozen=True)
class HostReport:
    """A whole verification.

    Attributes:
        host: name of the machine.
        verified_us: when, microseconds since 1970.
        seconds: how long it took.
        counters: kernel counters for the next verification to compare with.
    """

    host: str
    verified_us: int
    seconds: float
    groups: tuple[GroupReport, ...]
    has_gpu: bool
    boot_id: str = ""
    counters: Mapping[str, int] = field(default_factory=dict)

    @property
    def findings(self) -> list[Finding]:
        """Of all groups, in their order."""
        return [finding for group in self.groups for finding in group.findings]

    @property
    def problems(self) -> list[Finding]:
        """What somebody should do something about, the worst first."""
        found = [finding for finding in self.findings if finding.is_problem]
        return sorted(found, key=lambda finding: _ORDER.index(finding.outcome.status))

    @property
    def counts(self) -> dict[str, int]:
        """How many checks of each status."""
        counted = Counter(finding.outcome.status for finding in self.findings)
        return {status: counted[status] for status in reversed(_ORDER)}

    @property
    def status(self) -> Status:
        """The worst of all."""
        return worst(finding.outcome.status for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """0: nothing to do; 1: warnings; 2: failures."""
        return _EXIT_CODES.get(self.status, 0)

    def as_json(self) -> dict[str, Any]:
        """For programs, and for the next verification."""
        return {
            "host": self.host,
            "verified_us": self.verified_us,
            "seconds": self.seconds,
            "status": self.status,
            "has_gpu": self.has_gpu,
            "counts": self.counts,
            "groups": [
                {
                    "name": group.name,
                    "about": group.about,
                    "status": group.status,
                    "note": group.note,
                    "checks": [finding.as_json() for finding in group.findings],
                }
                for group in self.groups
            ],
            "boot_id": self.boot_id,
            "counters": dict(self.counters),
        }


def worst(statuses: Iterable[Status]) -> Status:
    """The worst status; ``unknown`` never outweighs a ``pass``."""
    found = set(statuses)
    return next((status for status in ("fail", "warn") if status in found), "pass")


def counters_of(text: str | None, boot_id: str) -> dict[str, int]:
    """The counters in a stored report of this boot; {} if it is of another, or unreadable."""
    try:
        stored = json.loads(text or "{}")
        if stored.get("boot_id") != boot_id:
            return {}
        return {str(name): int(value) for name, value in stored["counters"].items()}
    except (ValueError, KeyError, AttributeError, TypeError):
        return {}
