"""From a checked request to its answer: lease, admission, tokens, generation."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

from anyio import to_thread

from serving.api.errors import ApiError
from serving.api.merge import merge
from serving.api.record import RequestRecord
from serving.api.schemas.generation import GenerationRequest
from serving.api.schemas.responses import Usage
from serving.api.sequence import Delta, text_deltas
from serving.api.services import Services
from serving.hub.protocol import LoadedModel
from serving.telemetry.meter import SequenceMeter
from serving.telemetry.sketches import DEFAULT_TENANT, Sketches, Stream, observe

MODEL_VERSION_HEADER = "x-model-version"


class Answer:
    """The sequences of one request, running on one version of a model.

    Args:
        model: the leased version.
        meters: one per sequence.
        deltas: merged text of the sequences.
        record: where the request's outcome is noted.
    """

    def __init__(
        self,
        model: LoadedModel,
        meters: list[SequenceMeter],
        deltas: AsyncGenerator[Delta, None],
        record: RequestRecord,
    ) -> None:
        self.model = model
        self.created = int(time.time())
        self._meters = meters
        self._deltas = deltas
        self._record = record
        self._first: Delta | None = None

    @property
    def fingerprint(self) -> str:
        """``system_fingerprint``: the version that answers."""
        return f"iw-{self.model.short}"

    @property
    def headers(self) -> dict[str, str]:
        """Response headers that name the version."""
        return {MODEL_VERSION_HEADER: self.model.short}

    def usage(self) -> Usage:
        """Tokens so far, of all sequences."""
        prompt = sum(meter.prompt_tokens for meter in self._meters)
        generated = sum(meter.generated_tokens for meter in self._meters)
        return Usage(
            prompt_tokens=prompt,
            completion_tokens=generated,
            total_tokens=prompt + generated,
        )

    async def start(self) -> None:
        """Wait for the first text, while a failure can still be told by an HTTP status."""
        self._first = await anext(self._deltas)

    async def __aiter__(self) -> AsyncIterator[Delta]:
        """All deltas, in the order in which they come."""
        if self._first is not None:
            self._note(self._first)
            yield self._first
        async for delta in self._deltas:
            self._note(delta)
            yield delta

    async def collect(self) -> tuple[list[str], list[str]]:
        """Wait for the end; return text and finish reason of each sequence."""
        texts: list[list[str]] = [[] for _ in self._meters]
        reasons = ["" for _ in self._meters]
        async for delta in self:
            texts[delta.index].append(delta.text)
            reasons[delta.index] = delta.finish_reason or ""
        return ["".join(parts) for parts in texts], reasons

    def close(self) -> None:
        """Note in the request's record what came of it."""
        first = [seconds for meter in self._meters if (seconds := meter.first_token_seconds)]
        self._record.ttft = min(first, default=None)
        self._record.output_length = sum(meter.generated_tokens for meter in self._meters)

    def _note(self, delta: Delta) -> None:
        if delta.finish_reason is not None:
            self._record.finish_reason = delta.finish_reason


@asynccontextmanager
async def answering(
    services: Services, request: GenerationRequest, record: RequestRecord, endpoint: str
) -> AsyncIterator[Answer]:
    """Run ``request`` until the block ends, on one lease from tokenising to the last token.

    Raises:
        ApiError: the server is full, or the prompt does not fit the model's context.
        IronworksError: unknown model, no engine, or messages the template refuses.
    """
    async with services.hub.lease(request.model) as model:
        record.model_name, record.model_version = model.name, model.short
        places, field = request.prompt_count, request.prompt_field
        with services.admission.admit(model.name, places, param=field):
            prompts = await to_thread.run_sync(request.prompt_ids, model.codec)
            record.input_length = sum(map(len, prompts))
            limits = [_max_tokens(request, len(ids), model.max_model_len) for ids in prompts]
            _check_ids(prompts, model, field)
            meters = [
                SequenceMeter(
                    services.metrics,
                    model=model.name,
                    endpoint=endpoint,
                    prompt_tokens=len(ids),
                    arrived=record.arrived,
                )
                for ids in prompts
            ]
            sequences = [
                text_deltas(
                    model,
                    record.request_id,
                    ids,
                    request.sampling(limit),
                    stops=request.stop,
                    meter=meter,
                    index=index,
                )
                for index, (ids, limit, meter) in enumerate(
                    zip(prompts, limits, meters, strict=True)
                )
            ]
            async with aclosing(merge(sequences)) as deltas:
                answer = Answer(model, meters, deltas, record)
                failed = False
                try:
                    yield answer
                except Exception:
                    failed = True
                    raise
                finally:
                    answer.close()
                    _sketch(services.sketches, model, endpoint, prompts, meters, failed, record)


def _sketch(
    sketches: Sketches,
    model: LoadedModel,
    endpoint: str,
    prompts: list[list[int]],
    meters: list[SequenceMeter],
    failed: bool,
    record: RequestRecord,
) -> None:
    """Count the request's sequences; a stream's failure is in the record, not raised."""
    stream = Stream(model.name, model.digest, endpoint, DEFAULT_TENANT)
    for ids, meter in zip(prompts, meters, strict=True):
        unfinished = "error" if failed or record.error_code else "hung_up"
        sketches.add(stream, observe(model.codec, ids, meter, unfinished))


def _max_tokens(request: GenerationRequest, prompt_tokens: int, context: int) -> int:
    """Most tokens to generate after a prompt of ``prompt_tokens``."""
    field = request.prompt_field
    room = context - prompt_tokens
    if prompt_tokens == 0:
        raise ApiError(400, f"{field} comes to no tokens at all", param=field, code="empty_prompt")
    asked = request.requested_tokens
    if room < (asked or 1):
        wanted = f" plus {asked} to generate" if asked else ""
        raise ApiError(
            400,
            f"this model's maximum context length is {context} tokens, but the request has"
            f" {prompt_tokens} in {field}{wanted}; shorten it",
            param=field,
            code="context_length_exceeded",
        )
    return asked or min(room, request.default_tokens or room)


def _check_ids(prompts: list[list[int]], model: LoadedModel, field: str) -> None:
    """Refuse token ids that the model's tokenizer doesn't have."""
    if max(max(ids) for ids in prompts) >= model.codec.vocab_size:
        raise ApiError(
            400,
            f"{field} has a token id outside the vocabulary of {model.codec.vocab_size}",
            param=field,
            code="invalid_value",
        )
