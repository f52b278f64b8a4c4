"""What every gate returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Verdict = Literal["pass", "fail", "inconclusive"]


@dataclass(frozen=True)
class GateOutcome:
    """The answer of one gate about one version.

    ``inconclusive`` means that the gate could not be carried out (no time, no memory on
    this host): it says nothing about the version, and it does not allow a promotion.
    """

    verdict: Verdict
    summary: str
    """One sentence for a person."""
    numbers: Mapping[str, int | str | bool] = field(default_factory=dict)
    """What was measured, for the registry: integers, text and flags, never floats."""
    findings: tuple[str, ...] = ()
    """Each thing that is wrong, with what to do about it."""
    sample: tuple[str, str] | None = None
    """A prompt and the text generated for it, if the gate made some."""

    @property
    def passed(self) -> bool:
        """Whether the version may be promoted as far as this gate is concerned."""
        return self.verdict == "pass"
