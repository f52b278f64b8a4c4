"""Whether an engine gets on with its work: what ``/healthz/progress`` is answered from.

The heartbeat is the engine's own step counter, never a probe request: a probe would queue
behind the very work that is stuck, and an engine that repeats "I am alive" once a second
while no step ends is not well.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class EngineProgress:
    """How one engine gets on.

    Attributes:
        model: registry name of what it serves.
        open_requests: sequences that the engine has not ended yet.
        steps: steps it has computed.
        stalled_seconds: how long it has had work without ending a step; 0 when idle.
        silent_seconds: how long it has said nothing at all; a healthy one that serves
            speaks at least once a second between its steps.
    """

    model: str
    open_requests: int
    steps: int
    stalled_seconds: float
    silent_seconds: float

    def problem(self, limit_seconds: float) -> str:
        """What is wrong with it in a few words, "" if nothing is."""
        if self.stalled_seconds > limit_seconds:
            return (
                f"{self.model}: {self.open_requests} requests are open and no step has ended"
                f" for {self.stalled_seconds:.0f} s"
            )
        if self.silent_seconds > limit_seconds:
            return f"{self.model}: the engine has said nothing for {self.silent_seconds:.0f} s"
        return ""


class WorkMeter:
    """Follows what one engine was asked for and what it says.

    A sequence is open from the request to the engine's last word on it. Whether its reader
    has taken the tokens yet does not count: a slow client must not look like a stuck engine.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: set[str] = set()
        self._steps = 0
        self._moved = self._heard = clock()

    def asked(self, name: str) -> None:
        """The engine is asked for a sequence."""
        if not self._open:
            self._moved = self._clock()  # the time before was idleness
        self._open.add(name)

    def ended(self, name: str) -> None:
        """The engine has said its last word on a sequence, or was told to forget it."""
        self._open.discard(name)

    def heard(self) -> None:
        """The engine has said something."""
        self._heard = self._clock()

    def stepped(self, steps: int) -> None:
        """The engine has told its step counter."""
        if steps != self._steps:
            self._steps = steps
            self._moved = self._clock()

    def progress(self, model: str) -> EngineProgress:
        """How the engine stands now."""
        now = self._clock()
        return EngineProgress(
            model=model,
            open_requests=len(self._open),
            steps=self._steps,
            stalled_seconds=now - self._moved if self._open else 0.0,
            silent_seconds=now - self._heard,
        )
