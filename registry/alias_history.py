"""Where an alias was before: read from the log, which is the only history there is."""

from __future__ import annotations

import json

from sqlalchemy import Connection, select

from registry.errors import NotFoundError
from registry.schema import audit_event


def earlier_holder(connection: Connection, model: str, alias: str, wanted: str | None) -> str:
    """Return the digest to roll back to: ``wanted`` if it ever held the alias, else the last.

    A rollback takes the versions it passes over out of the line, so that rolling back
    twice goes back two versions and not forth again.

    Raises:
        NotFoundError: ``wanted`` never held the alias, or there is no earlier version.
    """
    rows = connection.execute(
        select(audit_event.c.kind, audit_event.c.body)
        .where(audit_event.c.subject == f"{model}:{alias}")
        .order_by(audit_event.c.seq)
    ).all()
    line: list[str] = []
    held: set[str] = set()
    for row in rows:
        to = str(json.loads(row.body)["to"])
        if row.kind == "alias.rolled_back" and to in line:
            del line[len(line) - line[::-1].index(to) :]
        else:
            line.append(to)
        held.add(to)
    if wanted is not None:
        if wanted not in held:
            raise NotFoundError(
                f"{wanted[:12]} never held this alias",
                where=f"{model}:{alias}",
                fix="a version that never held it is promoted, not rolled back to",
            )
        return wanted
    if len(line) < 2:
        raise NotFoundError("there is no earlier version", where=f"{model}:{alias}")
    return line[-2]
