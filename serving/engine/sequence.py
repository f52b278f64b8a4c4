"""One request on its way through the engine, and the piece of it that a step computes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from registry.errors import InputError
from serving.engine.messages import FinishReason, Generate, SamplingParams, TokenLogprobs

MAX_LOGPROBS = 20


@dataclass(frozen=True)
class ModelLimits:
    """What a request is checked against."""

    vocab_size: int
    max_model_len: int
    """Longest prompt plus output, tokens."""
    eos_token_ids: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Sequence:
    """Prompt and output of one request, and how much of it is in the KV pool."""

    request_id: str
    token_ids: list[int]
    """Prompt, then output."""
    prompt_length: int
    max_length: int
    """The sequence ends when it is this long."""
    sampling: SamplingParams
    stop_token_ids: frozenset[int]
    arrived: float
    """Monotonic seconds at which the engine received it."""
    random: random.Random = field(repr=False)
    """Its own source of chance: draws don't depend on whatever else is in the batch."""
    slot: int = -1
    logprobs: TokenLogprobs | None = None
    """Of the newest token, where its parameters ask for them; set by the runner."""
    started: float | None = None
    """Monotonic seconds of its first step."""
    computed: int = 0
    """Tokens whose keys and values are in the pool."""

    @property
    def remaining(self) -> int:
        """Known tokens not computed yet: the rest of the prompt, or the newest token."""
        return len(self.token_ids) - self.computed

    @property
    def prefilled(self) -> bool:
        """Whether the whole prompt is in the pool."""
        return self.computed >= self.prompt_length

    @classmethod
    def from_request(cls, request: Generate, limits: ModelLimits, now: float) -> Sequence:
        """Check a request and make its sequence.

        Raises:
            InputError: naming the field that is out of range; nothing of the prompt is
                repeated in the text.
        """
        sampling, prompt = request.sampling, request.token_ids
        if not prompt:
            raise InputError("the prompt is empty", where="token_ids")
        if len(prompt) >= limits.max_model_len:
            raise InputError(
                f"the prompt has {len(prompt)} tokens and leaves no room for an answer: "
                f"the context is {limits.max_model_len}",
                where="token_ids",
            )
        if not 0 <= min(prompt) <= max(prompt) < limits.vocab_size:
            raise InputError(
                f"a token id is outside the vocabulary of {limits.vocab_size}", where="token_ids"
            )
        # Written so that NaN fails each of them.
        if not sampling.max_tokens >= 1:
            raise InputError("max_tokens must be at least 1", where="max_tokens")
        if not 0 <= sampling.temperature <= 1e4:
            raise InputError("temperature must be within 0…10000", where="temperature")
        if not 0 < sampling.top_p <= 1:
            raise InputError("top_p must be above 0 and at most 1", where="top_p")
        if not sampling.top_k >= 0:
            raise InputError("top_k must not be negative", where="top_k")
        if not 0 <= sampling.top_logprobs <= MAX_LOGPROBS:
            raise InputError(f"top_logprobs must be 0 to {MAX_LOGPROBS}", where="top_logprobs")
        eos = () if sampling.ignore_eos else limits.eos_token_ids
        return cls(
            request_id=request.request_id,
            token_ids=list(prompt),
            prompt_length=len(prompt),
            max_length=min(len(prompt) + sampling.max_tokens, limits.max_model_len),
            sampling=sampling,
            stop_token_ids=frozenset(eos) | frozenset(sampling.stop_token_ids),
            arrived=now,
            random=random.Random(sampling.seed),
        )

    def append(self, token_id: int) -> FinishReason | None:
        """Add a chosen token; the reason for which the sequence ends with it, if it does."""
        self.token_ids.append(token_id)
        if token_id in self.stop_token_ids:
            return "stop"
        if len(self.token_ids) >= self.max_length:
            return "length"
        return None


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive tokens of one sequence that one step computes."""

    sequence: Sequence
    start: int
    """Position of the first token in the sequence."""
    count: int

    @property
    def end(self) -> int:
        """Position after the last token: also the keys visible to the last token."""
        return self.start + self.count

    @property
    def samples(self) -> bool:
        """Whether the step knows all tokens before the next one, and so chooses it."""
        return self.end == len(self.sequence.token_ids)
