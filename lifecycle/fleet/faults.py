"""What can be wrong with a replica, and how patient its recovery is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """What is wrong with a replica, the worst first."""

    GONE = "process_gone"
    """It should run and has no process."""
    NEVER_STARTED = "never_started"
    """It was declared, and whoever should have started it did not."""
    HUNG = "api_hung"
    """The process is there and does not answer."""
    STUCK = "engine_stuck"
    """It says that work is open and no step ends."""
    NOT_READY = "not_ready"
    """It answers, and has not taken work for long."""
    ASIDE = "out_of_rotation"
    """It takes work, and the proxy sends it none."""
    PROXY = "proxy_down"
    """The proxy itself does not answer."""


OF_A_RELOAD = (Fault.ASIDE, Fault.NOT_READY, Fault.NEVER_STARTED)
"""What a reload that is under way does to a replica on purpose."""


@dataclass(frozen=True)
class RecoveryRule:
    """How long a fault must be seen, and how often it is acted on; times in seconds.

    Attributes:
        patience: by fault; a gone process and a stuck engine are certain at first sight,
            since the replica has measured the stall itself.
        import_seconds: a process this young that has not answered yet is starting.
        loading_seconds: how long a load may keep a replica from being ready.
        max_attempts: for one fault, however long it stands.
        max_in_window, window_seconds: for one replica, however often it is healthy between.
        first_pause: after an attempt that did not help; doubled after each further one.
    """

    patience: Mapping[Fault, float]
    import_seconds: float = 60.0
    loading_seconds: float = 900.0
    max_attempts: int = 5
    max_in_window: int = 10
    window_seconds: float = 1800.0
    first_pause: float = 20.0


RULE = RecoveryRule(
    patience={
        Fault.GONE: 0.0,
        Fault.STUCK: 0.0,
        Fault.PROXY: 4.0,
        Fault.HUNG: 15.0,
        Fault.ASIDE: 30.0,
        Fault.NEVER_STARTED: 60.0,
        Fault.NOT_READY: 300.0,
    }
)
