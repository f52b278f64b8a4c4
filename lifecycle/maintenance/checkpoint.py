"""Verifies the audit log against the head that an earlier check has seen."""

from __future__ import annotations

from dataclasses import dataclass

from registry.audit import AuditLog, LogHead


@dataclass(frozen=True)
class Checkpoint:
    """What was checked.

    Attributes:
        rows: rows that are good.
        head: the last good row.
        problems: why the log can't be trusted, in words; empty when it can.
    """

    rows: int
    head: LogHead
    problems: tuple[str, ...]


def check_log(audit: AuditLog, earlier: LogHead | None) -> Checkpoint:
    """Recompute the chain, and look for ``earlier`` in it.

    A chain alone does not show that its tail was cut off or that it was written anew from
    the first row; a head that was kept elsewhere does. Dagster's storage is elsewhere enough
    to notice an accident, and not against one who can write both.

    Args:
        audit: the log.
        earlier: the head of the last good check, None at the first.
    """
    verification = audit.verify()
    problems = list(verification.problems)
    if earlier is not None and earlier.seq > 0 and verification.bad_seq is None:
        found = next(audit.events(after=earlier.seq - 1, until=earlier.seq), None)
        if found is None:
            problems.append(
                f"the log ends at row {verification.head.seq}, an earlier check saw row "
                f"{earlier.seq}: its tail was cut off, or an old copy was put back"
            )
        elif found.hash_hex != earlier.hash_hex:
            problems.append(
                f"row {earlier.seq} has hash {found.hash_hex}, an earlier check saw "
                f"{earlier.hash_hex}: the log was written anew"
            )
    return Checkpoint(verification.rows, verification.head, tuple(problems))
