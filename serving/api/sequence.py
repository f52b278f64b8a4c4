"""One sequence: an engine's tokens become the text a client sees."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

from serving.engine.messages import SamplingParams, TokenOutput
from serving.hub.errors import EngineDiedError, EngineUnavailableError
from serving.hub.protocol import LoadedModel
from serving.telemetry.meter import SequenceMeter
from serving.text.stops import StopMatcher


@dataclass(frozen=True)
class Delta:
    """New text of one sequence; the last one says why it ended."""

    index: int
    text: str
    finish_reason: str | None = None


async def text_deltas(
    model: LoadedModel,
    request_id: str,
    prompt_ids: Sequence[int],
    sampling: SamplingParams,
    *,
    stops: Sequence[str],
    meter: SequenceMeter,
    index: int = 0,
) -> AsyncGenerator[Delta, None]:
    """Generate one sequence as text; close the generator to cancel it at the engine.

    Text that could still turn out to be half a character or part of a stop string is held
    back. A stop string ends the sequence and is not shown.

    Raises:
        EngineDiedError: the engine process ended.
        EngineUnavailableError: the engine gave the sequence up (it is being drained).
        RequestFailedError: the engine could not serve it.
    """
    decoder = model.codec.stream_decoder(prompt_ids)
    matcher = StopMatcher(stops)
    # The hub's iterator is a generator: closing it is what cancels.
    outputs = cast(
        AsyncGenerator[TokenOutput, None], model.generate(request_id, prompt_ids, sampling)
    )
    async with aclosing(outputs):
        async for output in outputs:
            meter.output(output)
            text = matcher.push(decoder.push(output.token_ids))
            reason: str | None = output.finish_reason
            if reason == "cancelled":
                raise EngineUnavailableError(
                    "the answer was cut off because this replica is being drained",
                    where=model.name,
                    fix="send the request again",
                )
            if reason is not None:
                text += matcher.push(decoder.flush())
                text += matcher.flush()
            if matcher.stopped:
                reason = "stop"
            if reason is not None:
                meter.finish(reason)
                yield Delta(index, text, reason)
                return
            if text:
                yield Delta(index, text)
    raise EngineDiedError(
        "the engine ended before the answer did", where=model.name, fix="send the request again"
    )
