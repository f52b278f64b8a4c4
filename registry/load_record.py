"""One load as it is kept: who loaded what, and when it went through each state."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from registry.audit import LogHead

State = Literal["started", "verified", "ready", "retired", "unloaded", "failed"]


@dataclass(frozen=True)
class LoadIdentity:
    """Who loads: the service, its processes, and the software and settings they run.

    ``pid`` is the engine's process, ``api_pid`` that of the API which started it;
    ``process_start_us`` tells two processes of one pid apart.
    """

    service: str
    model: str
    alias: str
    host: str
    boot_id: str
    pid: int
    process_start_us: int
    engine_version: str
    torch_version: str
    transformers_version: str
    git_commit: str
    git_dirty: bool
    device: str
    dtype: str
    config_digest: str
    verification: str
    api_pid: int


@dataclass(frozen=True)
class LoadTicket:
    """The number of a load, and the head of the log that the loading host was shown."""

    load_id: int
    log_head: LogHead


@dataclass(frozen=True)
class LoadRecord:
    """One load as the database has it. Times are microseconds, ``None`` = not (yet)."""

    load_id: int
    digest: str
    identity: LoadIdentity = field(repr=False)
    started_us: int
    verified_us: int | None
    ready_us: int | None
    retired_us: int | None
    ended_us: int | None
    end_kind: str | None
    end_reason: str | None
    heartbeat_us: int

    @property
    def state(self) -> State:
        """Where the load is in its life."""
        if self.ended_us is not None:
            return "failed" if self.end_kind == "failed" else "unloaded"
        if self.retired_us is not None:
            return "retired"
        if self.ready_us is not None:
            return "ready"
        return "started" if self.verified_us is None else "verified"


def load_record(row: Any) -> LoadRecord:
    """Build a record from a row of the table ``load``."""
    return LoadRecord(
        load_id=row.id,
        digest=row.digest.hex(),
        identity=LoadIdentity(**json.loads(row.identity)),
        started_us=row.started_us,
        verified_us=row.verified_us,
        ready_us=row.ready_us,
        retired_us=row.retired_us,
        ended_us=row.ended_us,
        end_kind=row.end_kind,
        end_reason=row.end_reason,
        heartbeat_us=row.heartbeat_us,
    )
