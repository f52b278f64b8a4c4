"""From the bytes of a request to a checked model of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from serving.api.errors import ApiError
from serving.api.schemas.generation import UNSUPPORTED
from serving.api.schemas.unsupported import first_unsupported

Model = TypeVar("Model", bound=BaseModel)

PLAIN = {"too_short": "must not be empty", "string_too_short": "must not be empty"}
"""Plainer words for some of pydantic's messages, by type of error."""


async def parse_body(request: Request, model: type[Model]) -> Model:
    """Read the body as ``model``.

    Raises:
        ApiError: not declared as JSON (415), not UTF-8, not JSON, or a field that is
            missing or not acceptable (400, naming the field as ``param``).
    """
    # Also what keeps a web page from posting here without the browser asking first.
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise ApiError(
            415,
            "the request does not say that its body is JSON;"
            " send the header Content-Type: application/json",
            code="unsupported_media_type",
        )
    body = await request.body()
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ApiError(
            400,
            f"the body is not UTF-8 (byte {error.start}); encode the JSON text as UTF-8",
            code="invalid_utf8",
        ) from None
    try:
        parsed = model.model_validate_json(body)
    except ValidationError as error:
        raise _from_validation(error) from None
    if (name := first_unsupported(parsed.model_extra or {})) is not None:
        raise ApiError(
            400,
            f"{name} is not supported by this server; leave it out",
            param=name,
            code=UNSUPPORTED,
        )
    return parsed


def _from_validation(error: ValidationError) -> ApiError:
    problems = error.errors(include_url=False, include_input=False)
    first = problems[0]
    if first["type"] == "json_invalid":
        reason = str(first.get("ctx", {}).get("error", "syntax error"))
        return ApiError(
            400, f"the body is not valid JSON ({reason}); correct it", code="invalid_json"
        )
    param = field_path(first["loc"])
    if not param:
        return ApiError(400, "the body is not a JSON object; send one", code="invalid_type")
    if first["type"] == "missing":
        return ApiError(
            400,
            f"missing required parameter: {param}",
            param=param,
            code="missing_required_parameter",
        )
    message = PLAIN.get(first["type"], first["msg"])
    more = f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""
    code = UNSUPPORTED if first["type"] == UNSUPPORTED else "invalid_value"
    return ApiError(400, f"{param}: {message}{more}", param=param, code=code)


def field_path(location: Sequence[int | str]) -> str:
    """Write pydantic's location as ``messages[0].role``."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path
