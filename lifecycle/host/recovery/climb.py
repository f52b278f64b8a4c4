"""What one climb of the ladder carries from rung to rung, and what each rung reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from lifecycle.host.host import Host
from lifecycle.host.recovery.replicas import HostReplicas
from registry.paths import StatePaths


class Verdict(StrEnum):
    """How a climb stands."""

    CLIMBING = "climbing"
    """The fault is confirmed and not yet cured."""
    DRIVER_OK = "driver_ok"
    """The driver answers again; or always did."""
    SERVING = "serving"
    """The replicas are back in rotation."""
    FAILED = "failed"
    """This attempt cured nothing; another may follow."""
    GIVEN_UP = "given_up"
    """No attempt can help: a person or a reboot must."""

    @property
    def over(self) -> bool:
        """Whether no further rung can help."""
        return self in (Verdict.FAILED, Verdict.GIVEN_UP)


@dataclass(frozen=True)
class Outcome:
    """What one rung did.

    Attributes:
        rung: its name.
        did: ``done``, ``skipped`` or ``failed``.
        evidence: what it saw, in words.
        seconds: how long it took.
        deadline: how long it might have taken.
    """

    rung: str
    did: str
    evidence: str
    seconds: float
    deadline: float


@dataclass(frozen=True)
class Climb:
    """One attempt to recover a host; times in seconds since 1970.

    Attributes:
        attempt: identifies it: the id of the run.
        fault_at: when the fault was first seen.
        verdict: how it stands.
        reason: the fault, or why it is over.
        needs_reboot: whether only a reboot helps.
        gpus: NVML indices to reset; empty: a reset can't help.
        addresses: on the PCI bus, of what is broken.
        driver_at: when the driver answered again.
        serving_at: when the replicas were ready again.
        outcomes: of the rungs so far.
    """

    attempt: str
    fault_at: float
    verdict: Verdict = Verdict.CLIMBING
    reason: str = ""
    needs_reboot: bool = False
    gpus: tuple[int, ...] = ()
    addresses: tuple[str, ...] = ()
    driver_at: float | None = None
    serving_at: float | None = None
    outcomes: tuple[Outcome, ...] = ()

    @property
    def driver_recovered_seconds(self) -> float | None:
        """From the fault until the driver answered again; None if there was no fault."""
        return None if self.driver_at is None else self.driver_at - self.fault_at

    @property
    def serving_again_seconds(self) -> float | None:
        """From the fault until the replicas were ready again."""
        return None if self.serving_at is None else self.serving_at - self.fault_at

    def give_up(self, reason: str, *, needs_reboot: bool = False) -> Climb:
        """Nothing further can help."""
        return replace(self, verdict=Verdict.GIVEN_UP, reason=reason, needs_reboot=needs_reboot)

    def with_outcome(self, outcome: Outcome) -> Climb:
        """Add what a rung reports."""
        return replace(self, outcomes=(*self.outcomes, outcome))

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Climb:
        """The same from plain values."""
        return cls(
            **{
                **values,
                "verdict": Verdict(values["verdict"]),
                "gpus": tuple(values["gpus"]),
                "addresses": tuple(values["addresses"]),
                "outcomes": tuple(Outcome(**outcome) for outcome in values["outcomes"]),
            }
        )


@dataclass(frozen=True)
class Site:
    """What the rungs work on.

    Attributes:
        host: the machine.
        paths: state folder.
        replicas: what serves on it.
        say: is told each step.
        pci_reset: whether the PCI rung may be tried.
        ignore_limit: climb although the attempts are used up; a person asks for that.
        ready_seconds: how long the replicas may take to be ready again.
    """

    host: Host
    paths: StatePaths
    replicas: HostReplicas
    say: Callable[[str], None]
    pci_reset: bool = False
    ignore_limit: bool = False
    ready_seconds: float = 120.0
