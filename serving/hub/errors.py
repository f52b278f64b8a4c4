"""What a request may meet between the HTTP tier and an engine process."""

from __future__ import annotations

from registry.errors import IronworksError


class EngineUnavailableError(IronworksError):
    """No engine can take the request now: loading, restarting or draining (HTTP 503).

    Args:
        what: what was wrong.
        where: the model concerned.
        fix: what to do about it.
        retry_after: seconds after which a retry makes sense.
    """

    code = "engine_unavailable"

    def __init__(
        self, what: str, *, where: str = "", fix: str = "", retry_after: float = 1.0
    ) -> None:
        super().__init__(what, where=where, fix=fix)
        self.retry_after = retry_after


class EngineDiedError(IronworksError):
    """The engine process ended while it held this request (HTTP 503, safe to retry)."""

    code = "engine_died"


class RequestFailedError(IronworksError):
    """The engine refused or could not finish this one request; others go on.

    Args:
        what: the engine's reason.
        code: the engine's machine-readable code.
    """

    def __init__(self, what: str, *, code: str) -> None:
        super().__init__(what)
        self.code = code
