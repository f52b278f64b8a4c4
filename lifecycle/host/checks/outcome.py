"""What a check says, and how checks are grouped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from lifecycle.host.inspection import Inspection

Status = Literal["pass", "warn", "fail", "unknown"]


@dataclass(frozen=True)
class Outcome:
    """The answer of one check.

    Attributes:
        status: ``unknown`` when this user or this machine does not tell: never a fault.
        evidence: what was seen, and where it was read.
        fix: what a person does about it; "" when there is nothing to do.
    """

    status: Status
    evidence: str
    fix: str = ""


Check = Callable[[Inspection], Outcome | None]
"""One check; None means that it does not apply to this machine."""


@dataclass(frozen=True)
class Group:
    """Checks about one part of a machine.

    Attributes:
        name: of the group, also of its asset check.
        about: in a few words.
        checks: in the order in which they are shown; a function's name is the check's name.
        needs_gpu: on a machine without a GPU the group is one line, ``no GPU``.
    """

    name: str
    about: str
    checks: tuple[Check, ...]
    needs_gpu: bool = False


def passed(evidence: str) -> Outcome:
    """All is as it should be."""
    return Outcome("pass", evidence)


def warned(evidence: str, fix: str) -> Outcome:
    """It works, but not well, or not for long."""
    return Outcome("warn", evidence, fix)


def failed(evidence: str, fix: str) -> Outcome:
    """It does not work, or what it gives can't be trusted."""
    return Outcome("fail", evidence, fix)


def unknown(evidence: str, fix: str = "") -> Outcome:
    """It can't be told here."""
    return Outcome("unknown", evidence, fix)
