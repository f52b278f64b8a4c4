"""What the API process and an engine process say to each other.

Framing: each message is a 4-byte big-endian length followed by one msgpack-encoded
tagged struct, over a Unix-domain socket of mode 0600. No pickle: a process that can be
made to write to the socket must not thereby run code in the other one.

Order of a conversation: the engine connects and says ``Hello``; the API answers
``Load``; the engine reports ``Progress`` while it works, then ``Verified`` once the bytes
it read are those of the manifest, then waits for ``Proceed`` (the API has recorded the
verification), warms up and says ``Ready``, or says ``LoadFailed`` and exits. After that
``Generate`` and ``Cancel`` go one way, ``StepOutput`` and ``RequestFailed`` the other.
``StepOutput`` is also sent, without outputs, once a second when idle: the heartbeat.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""A longer frame is a protocol error: the peer is closed, nothing is allocated for it."""

FinishReason = Literal["stop", "length", "cancelled"]
LoadPhase = Literal["start", "check", "read", "place", "warmup", "serving"]


class FileDigest(msgspec.Struct, frozen=True):
    """One file of a manifest: relative POSIX path, bytes, sha256 in hex."""

    path: str
    size: int
    sha256: str


class SamplingParams(msgspec.Struct, frozen=True):
    """How to choose each next token. ``temperature == 0`` is greedy."""

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps the whole vocabulary."""
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    top_logprobs: int = 0
    """So many most probable tokens are told with each token; 0 tells none."""


# ---- API → engine ---------------------------------------------------------------------


class Load(msgspec.Struct, tag=True):
    """Load a model directory whose bytes must be those of ``files``."""

    model_dir: str
    files: tuple[FileDigest, ...]
    device: str
    """A torch device: ``cpu``, ``cuda:0``."""
    dtype: str
    """``auto`` (as stored), ``bfloat16``, ``float16`` or ``float32``."""
    max_slots: int
    max_model_len: int
    """Longest prompt plus output, tokens; 0 takes the model's own limit."""
    max_batch_tokens: int
    """Most tokens one step computes, prefill chunks and decodes together."""
    threads: int
    """torch intra-op threads; 0 leaves torch's choice."""


class Proceed(msgspec.Struct, tag=True):
    """The verification is on record: warm up and serve."""


class Generate(msgspec.Struct, tag=True):
    """Start one sequence. ``token_ids`` is never empty and fits ``max_model_len``."""

    request_id: str
    token_ids: tuple[int, ...]
    sampling: SamplingParams


class Cancel(msgspec.Struct, tag=True):
    """Forget a request wherever it is; its slot is free within one step."""

    request_id: str


class Shutdown(msgspec.Struct, tag=True):
    """Exit now; the API has drained what it wanted to keep."""


# ---- engine → API ---------------------------------------------------------------------


class Hello(msgspec.Struct, tag=True):
    """First message: who is at the other end."""

    pid: int
    process_start_us: int
    """Unix time in microseconds at which the kernel started the process."""
    engine_version: str
    torch_version: str
    transformers_version: str


class Progress(msgspec.Struct, tag=True):
    """How far a load is: for logs and ``ironworks status``."""

    phase: LoadPhase
    bytes_done: int
    bytes_total: int


class Verified(msgspec.Struct, tag=True):
    """The bytes that were read, as hashed while reading them."""

    files: tuple[FileDigest, ...]
    seconds: dict[str, float]


class Ready(msgspec.Struct, tag=True):
    """Warm and able to serve."""

    device: str
    dtype: str
    max_model_len: int
    max_slots: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    weight_bytes: int
    kv_bytes: int
    seconds: dict[str, float]
    """By phase: check, read, place, warmup."""


class LoadFailed(msgspec.Struct, tag=True):
    """Last message of an engine that could not load; it exits after sending it."""

    phase: LoadPhase
    what: str
    where: str
    fix: str
    code: str


class TokenLogprobs(msgspec.Struct, frozen=True):
    """What the model gave to a chosen token and to the likeliest ones, before any sampling."""

    chosen: float
    """Natural logarithm of its probability."""
    top_ids: tuple[int, ...]
    """Most probable first."""
    top: tuple[float, ...]


class TokenOutput(msgspec.Struct, frozen=True):
    """New tokens of one request; the last one carries ``finish_reason``."""

    request_id: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    queue_seconds: float | None = None
    """With the first token: time from arrival at the engine to the first prefill step."""
    prefill_seconds: float | None = None
    """With the first token: time from the first prefill step to the first token."""
    logprobs: TokenLogprobs | None = None
    """Where ``SamplingParams.top_logprobs`` asked for them."""


class EngineStats(msgspec.Struct, frozen=True):
    """State of the engine after a step; counters only grow."""

    steps: int
    running: int
    waiting: int
    kv_tokens_used: int
    kv_tokens_total: int
    device_memory_bytes: int
    """Bytes the engine holds on its device (CPU: its resident set)."""
    prefix_query_tokens: int
    prefix_hit_tokens: int
    integrity_errors: int
    device_allocated_bytes: int | None = None
    """Bytes of it that live tensors use; None on CPU, where no allocator reserves any."""


class StepOutput(msgspec.Struct, tag=True):
    """What one step produced, or a heartbeat."""

    outputs: tuple[TokenOutput, ...]
    stats: EngineStats


class RequestFailed(msgspec.Struct, tag=True):
    """One request could not be served; the others go on."""

    request_id: str
    what: str
    code: str


ToEngine = Annotated[
    Load | Proceed | Generate | Cancel | Shutdown, "what an engine process accepts"
]
FromEngine = Annotated[
    Hello | Progress | Verified | Ready | LoadFailed | StepOutput | RequestFailed,
    "what an engine process says",
]
