"""``POST /v1/completions``."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from uuid import uuid4

import msgspec
from fastapi import APIRouter, Request
from msgspec import UNSET
from starlette.responses import Response

from serving.api.answer import Answer, answering
from serving.api.body import parse_body
from serving.api.record import record_of
from serving.api.schemas.completions import CompletionRequest
from serving.api.schemas.responses import TextChoice, TextCompletion, Usage
from serving.api.services import ServicesDependency
from serving.api.sse import EventStream, event

PATH = "/v1/completions"

router = APIRouter(tags=["completions"])


@router.post(PATH, summary="Continue one or several prompts")
async def create_completion(request: Request, services: ServicesDependency) -> Response:
    """Continue each prompt, whole or as one stream of server-sent events."""
    body = await parse_body(request, CompletionRequest)
    record = record_of(request)
    record.stream = bool(body.stream)
    async with AsyncExitStack() as stack:
        answer = await stack.enter_async_context(answering(services, body, record, PATH))
        completion_id = f"cmpl-{uuid4().hex}"
        if body.stream:
            await answer.start()
            return EventStream(
                _events(answer, completion_id, include_usage=body.include_usage),
                resources=stack.pop_all(),
                headers=answer.headers,
            )
        texts, reasons = await answer.collect()
        completion = TextCompletion(
            id=completion_id,
            created=answer.created,
            model=answer.model.name,
            system_fingerprint=answer.fingerprint,
            choices=[
                TextChoice(text=text, index=index, finish_reason=reason)
                for index, (text, reason) in enumerate(zip(texts, reasons, strict=True))
            ],
            usage=answer.usage(),
        )
        return Response(msgspec.json.encode(completion), 200, answer.headers, "application/json")


async def _events(
    answer: Answer, completion_id: str, *, include_usage: bool
) -> AsyncGenerator[bytes, None]:
    """The chunks of all prompts as they come, and the usage if asked for."""

    def chunk(choices: list[TextChoice], usage: Usage | None = None) -> bytes:
        return event(
            TextCompletion(
                id=completion_id,
                created=answer.created,
                model=answer.model.name,
                system_fingerprint=answer.fingerprint,
                choices=choices,
                usage=usage if include_usage else UNSET,
            )
        )

    async for delta in answer:
        yield chunk(
            [TextChoice(text=delta.text, index=delta.index, finish_reason=delta.finish_reason)]
        )
    if include_usage:
        yield chunk([], answer.usage())
