"""How this host's recoveries went: one small file, renamed into place at each change.

Kept beside the audit log, not only in it: the limit on attempts must hold while the registry
can't be written, and the exporter reads it every few seconds.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from registry.paths import StatePaths

MAX_ATTEMPTS = 2
WINDOW_SECONDS = 30 * 60.0
"""No more than so many attempts within so long: a fault that comes back needs a person."""

_KEPT = 20


@dataclass(frozen=True)
class Attempt:
    """One climb of the ladder, by the id of its run; times in seconds since 1970."""

    attempt: str
    started: float
    ended: float | None = None
    recovered: bool = False


@dataclass(frozen=True)
class GivenUp:
    """Why the host stays drained.

    Attributes:
        at: seconds since 1970.
        boot_id: of the boot in which that was found; a reboot makes it void.
        reason: in words.
        needs_reboot: whether only a reboot helps.
    """

    at: float
    boot_id: str
    reason: str
    needs_reboot: bool


@dataclass(frozen=True)
class RecoveryRecord:
    """The file.

    Attributes:
        attempts: the latest, oldest first.
        total_attempts: ever.
        drained: services that a recovery took out of rotation and has not brought back.
        stopped_units: systemd units that it stopped and has not started again.
        driver_recovered_seconds: of the latest recovery, None before the first.
        serving_again_seconds: the same.
        healthy_at: when a climb last ended with the host serving; a fault seen later is new.
        given_up: set while the host stays drained for good.
    """

    attempts: tuple[Attempt, ...] = ()
    total_attempts: int = 0
    drained: tuple[str, ...] = ()
    stopped_units: tuple[str, ...] = ()
    driver_recovered_seconds: float | None = None
    serving_again_seconds: float | None = None
    healthy_at: float = 0.0
    given_up: GivenUp | None = None

    def recent(self, now: float) -> int:
        """Attempts within the window."""
        return sum(1 for attempt in self.attempts if now - attempt.started < WINDOW_SECONDS)

    def begin(self, attempt: str, now: float) -> RecoveryRecord:
        """An attempt starts; no-op if it has started."""
        if self.attempts and self.attempts[-1].attempt == attempt:
            return self
        attempts = (*self.attempts, Attempt(attempt, now))[-_KEPT:]
        return replace(self, attempts=attempts, total_attempts=self.total_attempts + 1)

    def end(self, attempt: str, now: float, *, recovered: bool) -> RecoveryRecord:
        """An attempt has ended; no-op if it never began (nothing was broken)."""
        if not self.attempts or self.attempts[-1].attempt != attempt:
            return self
        last = replace(self.attempts[-1], ended=now, recovered=recovered)
        return replace(self, attempts=(*self.attempts[:-1], last))


def load(paths: StatePaths) -> RecoveryRecord:
    """Read the file; an empty record where there is none."""
    try:
        fields = json.loads(_file(paths).read_text())
    except FileNotFoundError:
        return RecoveryRecord()
    given_up = fields.pop("given_up")
    return RecoveryRecord(
        **{
            **fields,
            "attempts": tuple(Attempt(**attempt) for attempt in fields["attempts"]),
            "drained": tuple(fields["drained"]),
            "stopped_units": tuple(fields["stopped_units"]),
        },
        given_up=None if given_up is None else GivenUp(**given_up),
    )


def save(paths: StatePaths, record: RecoveryRecord) -> None:
    """Replace the file, whole or not at all."""
    file = _file(paths)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(record), indent=1) + "\n")
    partial.replace(file)


def _file(paths: StatePaths) -> Path:
    return paths.root / "host" / "recovery.json"
