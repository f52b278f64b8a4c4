"""The fields that chat and text completions share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from serving.engine.messages import SamplingParams
from serving.text.codec import TextCodec

UNSUPPORTED = "unsupported_parameter"
MAX_STOPS = 16
MAX_STOP_CHARACTERS = 256
MAX_STOP_TOKENS = 64
MAX_TOKENS = 2**31 - 1
MAX_SEED = 2**63 - 1


def refuse(message: str, *, kind: str = "invalid_value") -> NoReturn:
    """Reject the field being validated with a message of ours."""
    raise PydanticCustomError(kind, "{message}", {"message": message})


def _stop_list(value: Any) -> Any:
    stops = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        refuse("give a string or a list of strings")
    if len(stops) > MAX_STOPS:
        refuse(f"give at most {MAX_STOPS} stop strings")
    if any(not 1 <= len(stop) <= MAX_STOP_CHARACTERS for stop in stops):
        refuse(f"a stop string has 1 to {MAX_STOP_CHARACTERS} characters")
    return stops


class StreamOptions(BaseModel):
    """Options of a streamed answer."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    include_usage: bool = False
    """Send one more chunk at the end, with the token counts."""


class GenerationRequest(BaseModel):
    """What both kinds of completion take. Unknown fields are kept in ``model_extra``."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)

    model: str = Field(min_length=1, max_length=200)
    max_tokens: int | None = Field(default=None, ge=1, le=MAX_TOKENS)
    temperature: float | None = Field(default=None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(default=None, gt=0, le=1, allow_inf_nan=False)
    top_k: int | None = Field(default=None, ge=-1, le=MAX_TOKENS)
    """0 and -1 keep the whole vocabulary."""
    seed: int | None = Field(default=None, ge=-MAX_SEED - 1, le=MAX_SEED)
    stop: Annotated[list[str], BeforeValidator(_stop_list)] = Field(default_factory=list)
    stop_token_ids: list[Annotated[int, Field(ge=0)]] | None = Field(
        default=None, max_length=MAX_STOP_TOKENS
    )
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @abstractmethod
    def prompt_ids(self, codec: TextCodec) -> list[list[int]]:
        """Token ids of each prompt. Slow for long ones: run it in a thread.

        Raises:
            InputError: the model's chat template refuses the messages.
        """

    @property
    @abstractmethod
    def prompt_count(self) -> int:
        """How many sequences the request starts."""

    @property
    @abstractmethod
    def prompt_field(self) -> str:
        """Field that a complaint about the prompt names."""

    @property
    def requested_tokens(self) -> int | None:
        """Most tokens to generate as the client put it; None leaves it to the context."""
        return self.max_tokens

    @property
    def default_tokens(self) -> int | None:
        """Most tokens to generate when the client doesn't say; None fills the context."""
        return None

    @property
    def include_usage(self) -> bool:
        """Whether a streamed answer ends with the token counts."""
        return self.stream_options is not None and self.stream_options.include_usage

    def sampling(self, max_tokens: int) -> SamplingParams:
        """Sampling as the engine takes it; OpenAI's defaults for what was left out."""
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=max(0, self.top_k or 0),
            seed=self.seed,
            stop_token_ids=tuple(self.stop_token_ids or ()),
            ignore_eos=bool(self.ignore_eos),
        )


def valid_token_ids(value: Sequence[Any]) -> bool:
    """Whether every item is a whole number that could be a token id."""
    return all(type(item) is int and 0 <= item < 2**31 for item in value)
