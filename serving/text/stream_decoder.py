"""Text from tokens as they come, never half a character."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
PROMPT_TAIL = 5
"""Prompt tokens the decoder looks back on: a character has at most four bytes, hence tokens."""


class StreamDecoder:
    """Decode one sequence incrementally; special tokens are left out.

    The end of the prompt is context: it tells whether the first word starts with a space,
    and when the prompt ends inside a character, its bytes complete it. None of the prompt's
    own characters are emitted.

    Args:
        tokenizer: the model's tokenizer.
        prompt_ids: tokens before the first one pushed.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_ids: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        tail = list(prompt_ids[-PROMPT_TAIL:])
        prompt_text = tokenizer.decode(tail, skip_special_tokens=True)
        # DecodeStream gives back its whole context with the first text when that context
        # ends inside a character.
        self._echo = prompt_text if prompt_text.endswith(REPLACEMENT) else ""
        self._stream = DecodeStream(ids=tail, skip_special_tokens=True)
        self._emitted = tail  # tokens of the last emission, kept as context for flush()
        self._pending: list[int] = []

    def push(self, token_ids: Iterable[int]) -> str:
        """Return the text that is certain after ``token_ids``; "" while a character is open."""
        return "".join(self._step(token_id) for token_id in token_ids)

    def flush(self) -> str:
        """Return what is still held, without the bytes of a character that never ended."""
        if not self._pending:
            return ""
        known = self._tokenizer.decode(self._emitted, skip_special_tokens=True)
        text = self._tokenizer.decode(self._emitted + self._pending, skip_special_tokens=True)
        self._pending = []
        return text[len(known.rstrip(REPLACEMENT)) :].rstrip(REPLACEMENT)

    def _step(self, token_id: int) -> str:
        self._pending.append(token_id)
        try:
            text = self._stream.step(self._tokenizer, token_id)
        except Exception:  # the binding raises bare Exception
            # Byte sequences exist whose decoding changes when more follow; DecodeStream
            # gives up on them. Starting over from here loses no later text.
            self._stream = DecodeStream(skip_special_tokens=True)
            text = self._stream.step(self._tokenizer, token_id)
        if not text:
            return ""
        if self._echo:
            # What both begin with is the prompt's; a completed character differs from the
            # replacement that stood for its first bytes.
            text = text[_shared(self._echo, text) :]
            self._echo = ""
        self._emitted = self._pending
        self._pending = []
        return text


def _shared(left: str, right: str) -> int:
    """Number of characters with which both texts begin."""
    return sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False))
    )
