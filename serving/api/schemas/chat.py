"""``POST /v1/chat/completions``."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from serving.api.schemas.generation import MAX_TOKENS, UNSUPPORTED, GenerationRequest, refuse
from serving.text.codec import TextCodec

ROLES = ("system", "developer", "user", "assistant")
TOOL_ROLES = ("tool", "function")


def _role(value: Any) -> Any:
    if value in TOOL_ROLES:
        refuse("tools are not supported, so neither are their messages", kind=UNSUPPORTED)
    if value not in ROLES:
        refuse(f"unknown role; use one of {', '.join(ROLES)}")
    return value


def _text_content(value: Any) -> Any:
    """Join the text parts of a message; anything but text is refused."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        refuse("give a string or a non-empty list of text parts")
    texts: list[str] = []
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str):
            refuse('each part of the content is an object with a "type"')
        if kind != "text":
            refuse("only parts of type text are supported", kind=UNSUPPORTED)
        if not isinstance(part.get("text"), str):
            refuse('a part of type text has a string "text"')
        texts.append(part["text"])
    return "".join(texts)


def _absent(value: Any) -> Any:
    if value:
        refuse("tools are not supported; leave it out", kind=UNSUPPORTED)
    return None


class ChatMessage(BaseModel):
    """One turn of a conversation."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    role: Annotated[str, BeforeValidator(_role)]
    content: Annotated[str, BeforeValidator(_text_content)]
    tool_calls: Annotated[None, BeforeValidator(_absent)] = None
    function_call: Annotated[None, BeforeValidator(_absent)] = None

    def for_template(self) -> dict[str, str]:
        """The turn as chat templates know it (``developer`` is OpenAI's newer ``system``)."""
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": self.content}


class ChatCompletionRequest(GenerationRequest):
    """A conversation to continue."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=MAX_TOKENS)
    """OpenAI's newer name of ``max_tokens``; wins when both are given."""

    @property
    def requested_tokens(self) -> int | None:
        """``max_completion_tokens``, else ``max_tokens``."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def prompt_count(self) -> int:
        """A conversation is one sequence."""
        return 1

    @property
    def prompt_field(self) -> str:
        """``messages``."""
        return "messages"

    def prompt_ids(self, codec: TextCodec) -> list[list[int]]:
        """Token ids of the rendered conversation, alone in a list."""
        return [codec.render_chat([message.for_template() for message in self.messages])]
