"""``POST /v1/completions``."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from serving.api.schemas.generation import GenerationRequest, refuse, valid_token_ids
from serving.text.codec import TextCodec

MAX_PROMPTS = 64
DEFAULT_TOKENS = 16
"""OpenAI's default of ``max_tokens`` for this endpoint."""

Prompt = str | list[int]


def _prompts(value: Any) -> Any:
    """Bring the four accepted shapes of ``prompt`` to a list of prompts."""
    if isinstance(value, str) or (isinstance(value, list) and value and type(value[0]) is int):
        value = [value]
    if not isinstance(value, list) or not value:
        refuse("give a string, a list of token ids, or a non-empty list of either")
    if len(value) > MAX_PROMPTS:
        refuse(f"give at most {MAX_PROMPTS} prompts")
    for prompt in value:
        if not prompt:
            refuse("a prompt is empty")
        if not isinstance(prompt, str) and not (
            isinstance(prompt, list) and valid_token_ids(prompt)
        ):
            refuse("a prompt is a string or a list of token ids (whole numbers from 0)")
    return value


class CompletionRequest(GenerationRequest):
    """Texts or token ids to continue, each on its own."""

    prompt: Annotated[list[Prompt], BeforeValidator(_prompts)]

    @property
    def default_tokens(self) -> int | None:
        """16, as OpenAI's."""
        return DEFAULT_TOKENS

    @property
    def prompt_count(self) -> int:
        """One sequence per prompt."""
        return len(self.prompt)

    @property
    def prompt_field(self) -> str:
        """``prompt``."""
        return "prompt"

    def prompt_ids(self, codec: TextCodec) -> list[list[int]]:
        """Token ids of each prompt; a text is encoded with the model's own extra tokens."""
        return [
            codec.encode(prompt) if isinstance(prompt, str) else prompt for prompt in self.prompt
        ]
