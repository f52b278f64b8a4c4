"""What is noted about a request on its way, for the access log and the metrics."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.types import Scope

OTHER = "other"
"""Endpoint of a request that no route takes: a client's raw path is not logged."""

CLIENT_CLOSED = 499
"""Status noted, never sent, when the client hung up (nginx's number)."""


@dataclass
class RequestRecord:
    """One request; routes fill in what they learn. Holds no text of the user's."""

    request_id: str
    arrived: float = field(default_factory=time.perf_counter)
    """``time.perf_counter()`` of arrival."""
    status: int = 0
    model_name: str = ""
    model_version: str = ""
    """Short digest of the manifest that answered."""
    stream: bool = False
    input_length: int = 0
    """Prompt tokens."""
    output_length: int = 0
    """Generated tokens."""
    ttft: float | None = None
    """Arrival to first token, seconds."""
    finish_reason: str = ""
    error_code: str = ""

    @property
    def seconds(self) -> float:
        """Time since arrival."""
        return time.perf_counter() - self.arrived


def attach_record(scope: Scope, record: RequestRecord) -> None:
    """Make ``record`` the one of this request."""
    scope.setdefault("state", {})["record"] = record


def record_of(connection: Request | Scope) -> RequestRecord:
    """Return the record that `RequestIdMiddleware` attached."""
    scope = connection.scope if isinstance(connection, Request) else connection
    record = scope["state"]["record"]
    assert isinstance(record, RequestRecord)
    return record


def endpoint_of(scope: Scope) -> str:
    """Template of the route that took the request, or ``other``."""
    route = scope.get("route")
    return str(getattr(route, "path", OTHER))
