"""How often the live state is written down: on change, and once a minute at most.

Dagster keeps the rows of asset events for ever, so a sensor that looks every few seconds must
not write each look down; what every tick decided is in the tick itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EVERY_SECONDS = 60.0
CHANGES_SECONDS = 10.0
"""Two changes in a row: the second waits so long, or a number that jitters would be a change."""


@dataclass(frozen=True)
class Shown:
    """What was written down last, and when (Unix seconds)."""

    what: str = ""
    at: float = 0.0

    def is_due(self, what: str, now: float) -> bool:
        """Whether ``what`` is to be written down now."""
        age = now - self.at
        return age >= EVERY_SECONDS or (what != self.what and age >= CHANGES_SECONDS)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Shown:
        """Read a cursor's part; what can't be read is nothing."""
        try:
            return cls(str(value["what"]), float(value["at"]))
        except (KeyError, TypeError, ValueError):
            return cls()
