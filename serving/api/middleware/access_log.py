"""One JSON line and one count per request, however it ended."""

from __future__ import annotations

import asyncio

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.api.record import CLIENT_CLOSED, endpoint_of, record_of
from serving.telemetry.metrics import ServingMetrics

QUIET = ("/livez", "/readyz", "/metrics")
"""Asked every few seconds by machines: counted, not logged."""

log = structlog.get_logger("ironworks.access")


class AccessLogMiddleware:
    """Write the access log: lengths, times and outcome, never content.

    Args:
        app: what serves the request.
        metrics: where requests are counted.
    """

    def __init__(self, app: ASGIApp, metrics: ServingMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = record_of(scope)

        async def noting_status(message: Message) -> None:
            if message["type"] == "http.response.start" and not record.status:
                record.status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting_status)
        except asyncio.CancelledError:
            record.status = CLIENT_CLOSED
            raise
        finally:
            self._write(scope)

    def _write(self, scope: Scope) -> None:
        record = record_of(scope)
        endpoint = endpoint_of(scope)
        self._metrics.http_requests.labels(endpoint, str(record.status)).inc()
        if endpoint in QUIET:
            return
        log.info(
            "request",
            request_id=record.request_id,
            method=scope["method"],
            endpoint=endpoint,
            status=record.status,
            model_name=record.model_name,
            model_version=record.model_version,
            stream=record.stream,
            input_length=record.input_length,
            output_length=record.output_length,
            ttft=None if record.ttft is None else round(record.ttft, 6),
            seconds=round(record.seconds, 6),
            finish_reason=record.finish_reason,
            error_code=record.error_code,
        )
