"""Tells the audit log how a recovery went; an alert when a person is needed."""

from __future__ import annotations

from lifecycle.host.recovery.climb import Climb, Verdict
from lifecycle.host.recovery.replicas import ACTOR
from registry.canonical import Json
from registry.store import Registry

RECOVERED = "recovery.host_recovered"
NOT_NEEDED = "recovery.host_not_needed"
FAILED = "recovery.host_failed"
GIVEN_UP = "recovery.host_given_up"
ALERT = "alert.host"


def record_climb(registry: Registry, host: str, climb: Climb, drained: tuple[str, ...]) -> None:
    """Write one event of how it ended, and an alert if the host stays out of rotation.

    Args:
        registry: whose log.
        host: name of the machine.
        climb: as it ended.
        drained: replicas that are still out of rotation.
    """
    body: dict[str, Json] = {
        "attempt": climb.attempt,
        "reason": climb.reason,
        "needs_reboot": climb.needs_reboot,
        "drained": list(drained),
        "driver_recovered_ms": _ms(climb.driver_recovered_seconds),
        "serving_again_ms": _ms(climb.serving_again_seconds),
        "rungs": [
            {"rung": o.rung, "did": o.did, "evidence": o.evidence[:500], "ms": _ms(o.seconds)}
            for o in climb.outcomes
        ],
    }
    registry.record(_kind(climb), host, body, actor=ACTOR)
    if climb.verdict is Verdict.GIVEN_UP:
        registry.record(
            ALERT,
            host,
            {"alert": message(host, climb, drained), "needs_reboot": climb.needs_reboot},
            actor=ACTOR,
        )


def message(host: str, climb: Climb, drained: tuple[str, ...]) -> str:
    """What a person is told of a host that stays out of rotation."""
    stays = (
        f"{host} stays drained ({', '.join(drained) or 'no replica'}): {climb.reason.rstrip('.')}."
    )
    if climb.needs_reboot:
        return f"{stays} Reboot the machine, then run recover_host: it brings the replicas back."
    return (
        f"{stays} Remove the cause, then run recover_host with confirm_fault's ignore_limit: true."
    )


def _kind(climb: Climb) -> str:
    if climb.verdict is Verdict.GIVEN_UP:
        return GIVEN_UP
    if climb.verdict is Verdict.SERVING:
        return RECOVERED if climb.driver_at is not None else NOT_NEEDED
    return FAILED


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
