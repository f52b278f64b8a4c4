"""OpenAI's response objects, encoded by msgspec: one is written per token."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType


class Usage(Struct, frozen=True, kw_only=True):
    """Token counts of a whole request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatAnswer(Struct, frozen=True, kw_only=True):
    """The assistant's turn."""

    role: str = "assistant"
    content: str
    refusal: None = None


class ChatChoice(Struct, frozen=True, kw_only=True):
    """A complete answer."""

    index: int = 0
    message: ChatAnswer
    logprobs: None = None
    finish_reason: str


class ChatCompletion(Struct, frozen=True, kw_only=True):
    """``chat.completion``."""

    id: str
    object: str = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage


class ChatDelta(Struct, frozen=True, kw_only=True):
    """What a chunk adds to the assistant's turn."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    refusal: UnsetType | None = UNSET


class ChatChunkChoice(Struct, frozen=True, kw_only=True):
    """The choice of one chunk."""

    index: int = 0
    delta: ChatDelta
    logprobs: None = None
    finish_reason: str | None = None


class ChatChunk(Struct, frozen=True, kw_only=True):
    """``chat.completion.chunk``; ``usage`` is absent unless it was asked for."""

    id: str
    object: str = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType | None = UNSET


class TextChoice(Struct, frozen=True, kw_only=True):
    """A text completion, or what a chunk adds to it."""

    text: str
    index: int
    logprobs: None = None
    finish_reason: str | None = None


class TextCompletion(Struct, frozen=True, kw_only=True):
    """``text_completion``, whole or as a chunk."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    usage: Usage | UnsetType | None = UNSET


class Model(Struct, frozen=True, kw_only=True):
    """A served model; OpenAI's members, then ours."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "ironworks"
    version: str
    digest: str
    """sha256 of the manifest, 64 hex digits."""
    max_model_len: int
    state: str


class ModelList(Struct, frozen=True, kw_only=True):
    """The models of this replica."""

    object: str = "list"
    data: list[Model]
