"""Everything a model needs to read and write text: tokenizer and chat template."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from registry.errors import CheckpointError, InputError
from serving.text.chat_template import (
    ChatTemplate,
    Message,
    read_template,
    read_tokenizer_config,
    special_tokens,
)
from serving.text.stream_decoder import StreamDecoder


class TextCodec:
    """Text to token ids and back, for one model version; safe from several threads.

    Args:
        tokenizer: the model's tokenizer.
        template: its chat template, None for a model without one.
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self.vocab_size = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        """Highest token id plus one, added tokens included."""

    @classmethod
    def from_directory(cls, directory: Path) -> TextCodec:
        """Read ``tokenizer.json``, ``tokenizer_config.json`` and the chat template.

        Raises:
            CheckpointError: a file is missing or can't be used.
        """
        path = directory / "tokenizer.json"
        if not path.is_file():
            raise CheckpointError(
                "the model has no tokenizer.json",
                where=str(path),
                fix="save the tokenizer in the fast (tokenizers) format with the model",
            )
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the binding raises bare Exception
            raise CheckpointError(
                f"the tokenizer can't be read: {str(error)[:200]}",
                where=str(path),
                fix="copy the model directory again from its source",
            ) from None
        # A tokenizer saved by a training run may cut or pad what it reads.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        config = read_tokenizer_config(directory)
        source = read_template(directory, config)
        template = None if source is None else ChatTemplate(source, special_tokens(config))
        return cls(tokenizer, template)

    @property
    def has_chat_template(self) -> bool:
        """Whether `render_chat` can be used."""
        return self._template is not None

    def chat_text(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """Render ``messages`` with the model's template, as text.

        Raises:
            InputError: the model has no template, or its template refuses the messages.
        """
        if self._template is None:
            raise InputError(
                "this model has no chat template",
                where="messages",
                fix="use /v1/completions with a prompt",
            )
        return self._template.render(messages, add_generation_prompt=add_generation_prompt)

    def render_chat(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of ``messages`` plus the opening of the assistant's answer.

        The template writes every special token itself, so the tokenizer adds none.

        Raises:
            InputError: as `chat_text`.
        """
        return self.encode(self.chat_text(messages), add_special_tokens=False)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a plain text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of ``token_ids`` without special tokens."""
        text: str = self._tokenizer.decode(list(token_ids), skip_special_tokens=True)
        return text

    def stream_decoder(self, prompt_ids: Sequence[int] = ()) -> StreamDecoder:
        """Start decoding one answer token by token after ``prompt_ids``."""
        return StreamDecoder(self._tokenizer, prompt_ids)
