"""Server-sent events, in OpenAI's framing: ``data: <json>`` and a blank line each."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing

import msgspec
import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from registry.errors import IronworksError
from serving.api.errors import SERVER_ERROR, ApiError, from_ironworks
from serving.api.record import record_of

DONE = b"data: [DONE]\n\n"

log = structlog.get_logger(__name__)
_encoder = msgspec.json.Encoder()


def event(chunk: msgspec.Struct) -> bytes:
    """One event."""
    return b"data: " + _encoder.encode(chunk) + b"\n\n"


class EventStream(Response):
    """Send events as they come, then ``[DONE]``; a failure on the way is the last event.

    Args:
        events: what to send.
        resources: entered already; left when the response ends, however it ends.
        headers: further response headers.
    """

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        *,
        resources: AbstractAsyncContextManager[object],
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(
            # Proxies that buffer would turn the stream into one late block.
            headers={"cache-control": "no-cache", "x-accel-buffering": "no", **headers},
            media_type="text/event-stream",
        )
        del self.headers["content-length"]
        self._events = events
        self._resources = resources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        async with self._resources:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            try:
                async with aclosing(self._events):
                    async for data in self._events:
                        await self._body(send, data)
            except Exception as error:
                await self._body(send, _failure(scope, error))
            else:
                await self._body(send, DONE)
            await self._body(send, b"", more=False)

    async def _body(self, send: Send, data: bytes, *, more: bool = True) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": more})


def _failure(scope: Scope, error: Exception) -> bytes:
    """Note a failure after the headers went out, and tell it in the stream."""
    record = record_of(scope)
    told = from_ironworks(error) if isinstance(error, IronworksError) else None
    if told is None:
        log.error("stream failed", request_id=record.request_id, exc_info=error)
        told = ApiError(
            500,
            f"the server failed; its log has the reason under request id {record.request_id}",
            type=SERVER_ERROR,
            code="internal_error",
        )
    record.error_code = told.code or ""
    return b"data: " + told.body() + b"\n\n"
