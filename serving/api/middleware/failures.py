"""A failure of ours becomes a 500 with an id; its reason goes to the log, not to the client."""

from __future__ import annotations

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.api.errors import SERVER_ERROR, ApiError
from serving.api.record import record_of

log = structlog.get_logger(__name__)


class FailureMiddleware:
    """Catch what no route expected, so that the process goes on and nothing leaks.

    The log gets types and places of the exception; its message could quote the request.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        started = False

        async def noting_start(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, noting_start)
        except Exception as error:
            if scope["type"] != "http":
                raise
            record = record_of(scope)
            record.error_code = "internal_error"
            log.error("request failed", request_id=record.request_id, exc_info=error)
            if started:
                raise
            response = ApiError(
                500,
                f"the server failed; its log has the reason under request id {record.request_id}",
                type=SERVER_ERROR,
                code="internal_error",
            ).response()
            await response(scope, receive, send)
