"""The desired state of the fleet: which replicas should run, serve what, and take how much.

Rows say what *should* be; what *is* is only ever observed. Each change is one event
``replica.desired`` in the same transaction, so the log can tell the fleet of any time.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from sqlalchemy import Connection, delete, insert, select, update

from registry.audit import AuditLog, check_text
from registry.canonical import Json
from registry.database import Database
from registry.errors import ConflictError, InputError
from registry.names import check_alias, check_name
from registry.schema import desired_replica

DesiredState = Literal["running", "drained", "stopped"]

MAX_WEIGHT = 256
"""HAProxy's largest server weight (configuration manual, "weight")."""

# The same as the serving tier's own settings accept.
_SERVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,254}")
_DEVICE = re.compile(r"auto|cpu|cuda(:\d{1,2})?")


@dataclass(frozen=True)
class DesiredReplica:
    """One replica as it should be.

    Attributes:
        service: its name in logs, pid files, the proxy and the audit log.
        host: where it runs and listens: a name or an address.
        port: TCP port of its HTTP interface.
        model: registry name of what it serves.
        alias: which version of the model: the one that this alias names.
        weight: share of the load, 0 to 256, relative to the other replicas.
        state: ``running``: in rotation once it is ready. ``drained``: the process lives,
            takes no new request. ``stopped``: no process.
        device: ``auto``, ``cpu`` or ``cuda:N``.
    """

    service: str
    host: str
    port: int
    model: str
    alias: str = "production"
    weight: int = 100
    state: DesiredState = "running"
    device: str = "auto"

    def check(self) -> DesiredReplica:
        """Return itself.

        Raises:
            InputError: a field is malformed; names it.
        """
        for field, pattern in (("service", _SERVICE), ("host", _HOST), ("device", _DEVICE)):
            if not pattern.fullmatch(getattr(self, field)):
                raise InputError(
                    f"{getattr(self, field)[:60]!r} is not a replica's {field}", where=field
                )
        check_name("model", self.model)
        check_alias(self.alias)
        if not 1 <= self.port <= 65535:
            raise InputError(f"{self.port} is not a TCP port", where="port", fix="use 1 to 65535")
        if not 0 <= self.weight <= MAX_WEIGHT:
            raise InputError(
                f"{self.weight} is not a weight", where="weight", fix=f"use 0 to {MAX_WEIGHT}"
            )
        if self.state not in get_args(DesiredState):
            raise InputError(
                f"{str(self.state)[:40]!r} is not a desired state",
                where="state",
                fix=f"use one of {', '.join(get_args(DesiredState))}",
            )
        return self


class Fleet:
    """Reads and changes the desired state."""

    def __init__(self, database: Database, audit: AuditLog) -> None:
        self._database = database
        self._audit = audit

    def desired(self) -> list[DesiredReplica]:
        """Return all replicas that are declared, by host and port."""
        query = select(desired_replica).order_by(desired_replica.c.host, desired_replica.c.port)
        with self._database.read() as connection:
            return [_replica_of(row) for row in connection.execute(query)]

    def get(self, service: str) -> DesiredReplica | None:
        """Return one replica's desired state, ``None`` if it isn't declared."""
        with self._database.read() as connection:
            return _find(connection, service)

    def set(self, replica: DesiredReplica, *, actor: str, reason: str) -> bool:
        """Declare a replica, or change what is declared; event ``replica.desired``.

        Returns:
            False if that was declared already: nothing is written then.

        Raises:
            ConflictError: another service is declared at that address.
            InputError: a field is malformed.
        """
        replica.check()
        check_text("reason", reason)
        with self._database.write() as connection:
            before = _find(connection, replica.service)
            if before == replica:
                return False
            _refuse_taken(connection, replica)
            values = asdict(replica)
            event = self._audit.append(
                connection,
                kind="replica.desired",
                actor=actor,
                subject=replica.service,
                body={"from": _json(before), "to": _json(replica), "reason": reason},
            )
            values |= {"changed_us": event.ts_us, "actor": actor}
            if before is None:
                connection.execute(insert(desired_replica).values(values))
            else:
                key = desired_replica.c.service == replica.service
                connection.execute(update(desired_replica).where(key).values(values))
            return True

    def remove(self, service: str, *, actor: str, reason: str) -> bool:
        """Forget a replica; event ``replica.desired`` whose ``to`` is null.

        Whatever still runs under that name is stopped by the next reconcile.

        Returns:
            False if it wasn't declared.
        """
        check_text("reason", reason)
        with self._database.write() as connection:
            before = _find(connection, service)
            if before is None:
                return False
            self._audit.append(
                connection,
                kind="replica.desired",
                actor=actor,
                subject=service,
                body={"from": _json(before), "to": None, "reason": reason},
            )
            connection.execute(delete(desired_replica).where(desired_replica.c.service == service))
            return True


def _find(connection: Connection, service: str) -> DesiredReplica | None:
    row = connection.execute(
        select(desired_replica).where(desired_replica.c.service == service)
    ).first()
    return _replica_of(row) if row else None


def _replica_of(row: Any) -> DesiredReplica:
    return DesiredReplica(
        service=row.service,
        host=row.host,
        port=row.port,
        model=row.model,
        alias=row.alias,
        weight=row.weight,
        state=row.state,
        device=row.device,
    )


def _json(replica: DesiredReplica | None) -> Json:
    return None if replica is None else asdict(replica)


def _refuse_taken(connection: Connection, replica: DesiredReplica) -> None:
    row = connection.execute(
        select(desired_replica.c.service).where(
            desired_replica.c.host == replica.host,
            desired_replica.c.port == replica.port,
            desired_replica.c.service != replica.service,
        )
    ).first()
    if row:
        raise ConflictError(
            f"{row.service} is declared there already",
            where=f"{replica.host}:{replica.port}",
            fix="choose another port, or remove that replica first",
        )
