"""Every failure as OpenAI's error object: ``{"error": {message, type, param, code}}``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from registry.errors import InputError, IronworksError, NotFoundError
from serving.api.record import record_of
from serving.hub.errors import EngineDiedError, EngineUnavailableError, RequestFailedError

INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"


class ApiError(Exception):
    """A failure that is answered with an error object.

    Args:
        status: HTTP status.
        message: what was wrong and what to do; never echoes large input.
        type: OpenAI's class of error.
        param: the field concerned, e.g. ``messages[0].role``.
        code: machine-readable reason.
        retry_after: seconds after which a retry makes sense, sent as ``Retry-After``.
        headers: further response headers.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = INVALID_REQUEST,
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type
        self.param = param
        self.code = code
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["retry-after"] = str(max(1, math.ceil(retry_after)))

    def body(self) -> bytes:
        """Encode the error object as JSON."""
        return msgspec.json.encode({"error": self.fields()})

    def fields(self) -> dict[str, str | None]:
        """Return the four members of the error object."""
        return {
            "message": self.message,
            "type": self.type,
            "param": self.param,
            "code": self.code,
        }

    def response(self) -> Response:
        """Build the HTTP response."""
        return Response(self.body(), self.status, self.headers, "application/json")


def from_ironworks(error: IronworksError) -> ApiError | None:
    """Translate an error of the lower layers; None for one that says nothing to a client."""
    message = f"{error.what}; {error.fix}" if error.fix else error.what
    match error:
        case EngineUnavailableError():
            return ApiError(
                503, message, type=SERVER_ERROR, code=error.code, retry_after=error.retry_after
            )
        case EngineDiedError():
            return ApiError(503, message, type=SERVER_ERROR, code=error.code, retry_after=1)
        case RequestFailedError() if error.code == InputError.code:
            return ApiError(400, message, code=error.code)
        case RequestFailedError():
            return ApiError(500, message, type=SERVER_ERROR, code=error.code)
        case NotFoundError():
            return ApiError(404, message, param="model", code="model_not_found")
        case InputError():
            return ApiError(400, message, param=error.where or None, code=error.code)
    return None


async def handle_api_error(request: Request, error: Exception) -> Response:
    """Answer an `ApiError`."""
    assert isinstance(error, ApiError)
    record_of(request).error_code = error.code or ""
    return error.response()


async def handle_ironworks_error(request: Request, error: Exception) -> Response:
    """Answer an `IronworksError`, or pass on one that is a failure of ours."""
    assert isinstance(error, IronworksError)
    translated = from_ironworks(error)
    if translated is None:
        raise error
    return await handle_api_error(request, translated)


async def handle_http_exception(request: Request, error: Exception) -> Response:
    """Answer the router's own refusals: unknown path, wrong method."""
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    if error.status_code == 404:
        message = "no such endpoint; see /openapi.json"
    elif error.status_code == 405:
        message = "this endpoint does not take that method; see the Allow header"
    else:
        message = phrase
    return await handle_api_error(
        request,
        ApiError(
            error.status_code,
            message,
            code=phrase.lower().replace(" ", "_"),
            headers=error.headers,
        ),
    )
