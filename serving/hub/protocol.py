"""What the HTTP tier sees of the hub.

Routes depend on these shapes only. A request takes a lease, tokenises with the lease's
own codec and generates on the lease's own engine, so that a swap in between can't mix
the tokenizer of one version with the weights of another.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from serving.engine.messages import EngineStats, SamplingParams, TokenOutput
from serving.hub.work import EngineProgress

if TYPE_CHECKING:
    from serving.text.codec import TextCodec

ModelState = Literal["loading", "ready", "restarting", "stopped"]


@dataclass(frozen=True)
class ReadyState:
    """Whether the replica accepts work, and if not, why (one short phrase)."""

    ok: bool
    reason: str = ""


@dataclass(frozen=True)
class ModelCard:
    """A model of this replica as ``/v1/models``, ``/metrics`` and the admin API show it.

    While a model has no live engine (``state`` is not ``ready``) the card still tells
    which version it is meant to serve; ``device`` and the byte counts are then empty.
    """

    name: str
    version: str
    digest: str
    """sha256 of the manifest, 64 hex digits."""
    created: int
    """Unix seconds at which the version was registered."""
    state: ModelState
    max_model_len: int = 0
    max_slots: int = 0
    device: str = ""
    dtype: str = ""
    weight_bytes: int = 0
    kv_bytes: int = 0
    engine_pid: int = 0
    restarts: int = 0
    """How often this replica has had to bring the engine back."""
    leases: int = 0
    """Requests that hold the current version now."""
    load_seconds: dict[str, float] = field(default_factory=dict)
    """By phase (check, read, place, warmup) and ``total``, of the latest load."""

    @property
    def short(self) -> str:
        """First 12 hex digits of the digest: ``x-model-version``."""
        return self.digest[:12]


class LoadedModel(Protocol):
    """One version on one engine, for as long as a lease on it is held."""

    @property
    def name(self) -> str:
        """Name in the registry: what a request's ``model`` says."""

    @property
    def version(self) -> str:
        """Version within the model, e.g. ``v1``."""

    @property
    def digest(self) -> str:
        """sha256 of the manifest, 64 hex digits."""

    @property
    def short(self) -> str:
        """First 12 hex digits of the digest."""

    @property
    def codec(self) -> TextCodec:
        """Tokenizer and chat template of exactly this version."""

    @property
    def max_model_len(self) -> int:
        """Longest prompt plus output, tokens."""

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a sequence unless ``ignore_eos``."""

    @property
    def created(self) -> int:
        """Unix seconds at which the version was registered."""

    def generate(
        self, request_id: str, token_ids: Sequence[int], sampling: SamplingParams
    ) -> AsyncIterator[TokenOutput]:
        """Generate one sequence; the last output carries ``finish_reason``.

        Closing the iterator early (``aclose``, or leaving ``async for`` inside
        ``contextlib.aclosing``) cancels the request at the engine. ``request_id`` is for
        logs and need not be unique; ``TokenOutput.request_id`` is the hub's own.

        Raises:
            EngineDiedError: the engine process ended.
            RequestFailedError: the engine could not serve this request.
        """


class ModelHub(Protocol):
    """The models of one replica."""

    def lease(self, model: str) -> AbstractAsyncContextManager[LoadedModel]:
        """Hold the current version of ``model`` until the context ends.

        Raises (on entry):
            NotFoundError: the replica doesn't serve a model of that name.
            EngineUnavailableError: loading, restarting or draining; has ``retry_after``.
        """

    def models(self) -> list[ModelCard]:
        """Every model of this replica, live or not."""

    def stats(self) -> dict[str, EngineStats]:
        """Latest engine statistics by model name; only models with a live engine."""

    def ready(self) -> ReadyState:
        """Whether the replica accepts work: not draining, every model live."""

    def progress(self) -> list[EngineProgress]:
        """How every live engine gets on, those included that only end what they had."""
