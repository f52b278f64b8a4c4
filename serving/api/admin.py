"""The admin API of a replica: status, swap, drain, memory, sketches, canary.

Its own ASGI application on its own Unix socket of mode 0600: whoever may open the socket
is the operator, and nothing of it is reachable from the network.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from registry.errors import (
    ConflictError,
    DatabaseError,
    InputError,
    IronworksError,
    NotFoundError,
)
from serving.api.canary import CanaryRequest, ask_canary
from serving.hub.errors import EngineDiedError, EngineUnavailableError
from serving.hub.hub import Hub
from serving.telemetry.sketches import Sketches

_Body = TypeVar("_Body")
_STATUS: tuple[tuple[type[IronworksError], int], ...] = (
    (NotFoundError, 404),
    (ConflictError, 409),
    (EngineUnavailableError, 503),
    (EngineDiedError, 503),
    (DatabaseError, 503),
)
"""First match wins; what isn't listed is the request's or the version's fault: 400."""


class SwapRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Body of ``POST /swap``."""

    version: str
    """``model@version``, a digest, or a unique prefix of one."""


class DrainRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Body of ``POST /drain``; may be empty."""

    seconds: float | None = None
    """How long running requests may take; default: the replica's setting."""


def create_admin_app(hub: Hub, sketches: Sketches | None = None) -> Starlette:
    """The ASGI application; the caller serves it on a private socket.

    Args:
        hub: the models.
        sketches: those of the public application.
    """
    kept = sketches or Sketches()

    async def status(_: Request) -> Response:
        return JSONResponse(hub.status())

    async def memory(_: Request) -> Response:
        return JSONResponse(hub.memory())

    async def swap(request: Request) -> Response:
        body = _decode(await request.body(), SwapRequest)
        return JSONResponse(asdict(await hub.swap(body.version)))

    async def drain(request: Request) -> Response:
        body = _decode(await request.body() or b"{}", DrainRequest)
        return JSONResponse({"still_running": await hub.drain(body.seconds)})

    async def show_sketches(_: Request) -> Response:
        return JSONResponse(kept.as_json())

    async def canary(request: Request) -> Response:
        body = _decode(await request.body(), CanaryRequest)
        return JSONResponse(await ask_canary(hub, body))

    return Starlette(
        routes=[
            Route("/status", status),
            Route("/debug/memory", memory),
            Route("/swap", swap, methods=["POST"]),
            Route("/drain", drain, methods=["POST"]),
            Route("/sketches", show_sketches),
            Route("/canary", canary, methods=["POST"]),
        ],
        exception_handlers={IronworksError: _refuse},
    )


def _decode(body: bytes, kind: type[_Body]) -> _Body:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"the body is not acceptable: {error}", where="request body") from None


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, IronworksError)
    status = next((code for kind, code in _STATUS if isinstance(error, kind)), 400)
    return JSONResponse(
        {
            "error": {
                "message": str(error),
                "type": "admin_error",
                "param": None,
                "code": error.code,
                "what": error.what,
                "where": error.where,
                "fix": error.fix,
            }
        },
        status_code=status,
    )
