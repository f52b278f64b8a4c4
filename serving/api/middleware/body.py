"""Take the body in whole, within a limit, then watch for the client hanging up."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.api.errors import ApiError
from serving.api.record import CLIENT_CLOSED, record_of

DISCARDED_BODIES = 8
"""How many times the limit is read and thrown away so that the client sees the 413: one that
is still sending when the connection closes may never read it."""


class ClientGoneError(Exception):
    """The client hung up before its body was complete."""


class BodyMiddleware:
    """Answer 413 to a body over the limit, and cancel the request of a client that is gone.

    A hang-up is only seen by someone who calls ``receive``; a route that waits for an
    engine does not. So this does, and cancels the route's task, which closes the generator,
    which cancels the sequence at the engine.

    Args:
        app: what serves the request.
        max_body_bytes: largest body taken.
    """

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        try:
            body = await self._read(scope, receive)
        except ClientGoneError:
            record_of(scope).status = CLIENT_CLOSED
            return
        except ApiError as error:
            record_of(scope).error_code = error.code or ""
            await error.response()(scope, receive, send)
            return
        await self._serve(scope, body, receive, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        """Return the body.

        Raises:
            ApiError: it is over the limit.
            ClientGoneError: it did not come to its end.
        """
        limit = self._max_body_bytes
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared) > limit * DISCARDED_BODIES:
            raise self._too_large()
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            part = message.get("body", b"")
            size += len(part)
            if size <= limit:
                parts.append(part)
            else:
                parts.clear()
            ended = not message.get("more_body", False)
            if size > limit and (ended or size > limit * DISCARDED_BODIES):
                raise self._too_large()
            if ended:
                return b"".join(parts)

    def _too_large(self) -> ApiError:
        return ApiError(
            413,
            f"the body is larger than {self._max_body_bytes} bytes; send a shorter request",
            code="request_too_large",
        )

    async def _serve(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        messages: asyncio.Queue[Message] = asyncio.Queue()
        messages.put_nowait({"type": "http.request", "body": body, "more_body": False})
        complete = False

        async def noting_end(message: Message) -> None:
            nonlocal complete
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                complete = True
            await send(message)

        async def serve() -> None:
            await self._app(scope, messages.get, noting_end)

        app = asyncio.create_task(serve())
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((app, gone), return_when=asyncio.FIRST_COMPLETED)
            # After a complete response the server reports a disconnect too; what the route
            # still has to tidy up then runs to its end.
            if not app.done() and not complete:
                record_of(scope).status = CLIENT_CLOSED
                record_of(scope).finish_reason = "disconnected"
                app.cancel()
            await asyncio.wait((app,))
        finally:
            gone.cancel()
            if not app.done():  # the server itself is cancelling
                app.cancel()
                await asyncio.wait((app,))
        if not app.cancelled():
            app.result()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
