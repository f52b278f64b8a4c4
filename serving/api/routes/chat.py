"""``POST /v1/chat/completions``."""

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
from serving.api.schemas.chat import ChatCompletionRequest
from serving.api.schemas.responses import (
    ChatAnswer,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    Usage,
)
from serving.api.services import ServicesDependency
from serving.api.sse import EventStream, event

PATH = "/v1/chat/completions"

router = APIRouter(tags=["completions"])


@router.post(PATH, summary="Continue a conversation")
async def create_chat_completion(request: Request, services: ServicesDependency) -> Response:
    """Answer a conversation, whole or as a stream of server-sent events."""
    body = await parse_body(request, ChatCompletionRequest)
    record = record_of(request)
    record.stream = bool(body.stream)
    async with AsyncExitStack() as stack:
        answer = await stack.enter_async_context(answering(services, body, record, PATH))
        completion_id = f"chatcmpl-{uuid4().hex}"
        if body.stream:
            await answer.start()
            return EventStream(
                _events(answer, completion_id, include_usage=body.include_usage),
                resources=stack.pop_all(),
                headers=answer.headers,
            )
        (text,), (reason,) = await answer.collect()
        completion = ChatCompletion(
            id=completion_id,
            created=answer.created,
            model=answer.model.name,
            system_fingerprint=answer.fingerprint,
            choices=[ChatChoice(message=ChatAnswer(content=text), finish_reason=reason)],
            usage=answer.usage(),
        )
        return Response(msgspec.json.encode(completion), 200, answer.headers, "application/json")


async def _events(
    answer: Answer, completion_id: str, *, include_usage: bool
) -> AsyncGenerator[bytes, None]:
    """The chunks of one answer: role, text, finish reason, and the usage if asked for."""

    def chunk(choices: list[ChatChunkChoice], usage: Usage | None = None) -> bytes:
        return event(
            ChatChunk(
                id=completion_id,
                created=answer.created,
                model=answer.model.name,
                system_fingerprint=answer.fingerprint,
                choices=choices,
                usage=usage if include_usage else UNSET,
            )
        )

    yield chunk([ChatChunkChoice(delta=ChatDelta(role="assistant", content="", refusal=None))])
    async for delta in answer:
        if delta.text:
            yield chunk([ChatChunkChoice(delta=ChatDelta(content=delta.text))])
        if delta.finish_reason is not None:
            yield chunk([ChatChunkChoice(delta=ChatDelta(), finish_reason=delta.finish_reason)])
    if include_usage:
        yield chunk([], answer.usage())
