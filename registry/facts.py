"""What the control plane saw, decided and did: events that change no table."""

from __future__ import annotations

import re
from collections.abc import Mapping

from registry.audit import AuditLog, Event, check_text
from registry.canonical import Json
from registry.database import Database
from registry.errors import InputError

FAMILIES = ("alert", "canary", "drift", "host", "recovery", "reload", "scale")
"""First part of the kinds that may be recorded so; all others belong to a table."""

_KIND = re.compile(rf"({'|'.join(FAMILIES)})(\.[a-z][a-z0-9_]{{0,63}})+")


def record_fact(
    database: Database,
    audit: AuditLog,
    kind: str,
    subject: str,
    body: Mapping[str, Json],
    *,
    actor: str,
) -> Event:
    """Append one event of its own to the log.

    Args:
        database: of the log.
        audit: the log.
        kind: family and what happened, such as ``recovery.started``.
        subject: what it is about: a replica's service, a host, a model or a digest.
        body: canonical JSON values (no floats: write milliseconds or per mille).
        actor: who saw or did it.

    Raises:
        InputError: the kind isn't one of these families', or a value is malformed.
    """
    if not _KIND.fullmatch(kind):
        raise InputError(
            f"{kind[:60]!r} is not a kind of event that can be recorded by itself",
            where="kind",
            fix=f"begin with one of {', '.join(FAMILIES)}, such as recovery.started",
        )
    check_text("subject", subject)
    with database.write() as connection:
        return audit.append(connection, kind=kind, actor=actor, subject=subject, body=body)
