"""The engine's turn: schedule → run → postprocess. No torch, no socket."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from registry.errors import ConflictError
from serving.engine.messages import EngineStats, Generate, RequestFailed, TokenOutput
from serving.engine.scheduler import Scheduler
from serving.engine.sequence import ModelLimits, Sequence, Span
from serving.engine.slots import SlotPool

log = structlog.get_logger(__name__)

MAX_CONSECUTIVE_FAILURES = 3
"""Steps that fail in a row before the engine gives up and lets the API restart it."""


class Runner(Protocol):
    """Computes spans and chooses tokens: what stands between the scheduler and a model."""

    def run(self, spans: list[Span]) -> list[int | None]:
        """Compute the spans.

        Returns:
            The chosen token of each span that samples, in their order; None where the
            model gave no finite number to choose by.
        """
        ...

    def memory_bytes(self) -> int:
        """Bytes held on the device (CPU: resident set)."""
        ...

    def allocated_bytes(self) -> int | None:
        """Bytes of live tensors on the device; None on CPU."""
        ...


class EngineBroken(Exception):
    """Steps keep failing: only a new process can help."""


@dataclass
class StepResult:
    """What a step has to tell the API."""

    outputs: list[TokenOutput]
    failures: list[RequestFailed]


class Engine:
    """Serves requests on one runner.

    Args:
        runner: computes the steps.
        limits: what requests are checked against.
        max_slots: sequences that run at once.
        max_batch_tokens: most tokens in a step.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        runner: Runner,
        limits: ModelLimits,
        *,
        max_slots: int,
        max_batch_tokens: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self.scheduler = Scheduler(SlotPool(max_slots, limits.max_model_len), max_batch_tokens)
        self._runner = runner
        self._clock = clock
        self._steps = 0
        self._integrity_errors = 0
        self._failed_in_a_row = 0
        self._cancelled: list[TokenOutput] = []

    @property
    def busy(self) -> bool:
        """Whether the next step has something to do."""
        return self.scheduler.busy or bool(self._cancelled)

    def add(self, request: Generate) -> None:
        """Queue a request.

        Raises:
            InputError: a field is out of range.
            ConflictError: a request of this id is under way.
        """
        if self.scheduler.find(request.request_id) is not None:
            raise ConflictError("a request of this id is under way", where="request_id")
        self.scheduler.add(Sequence.from_request(request, self.limits, self._clock()))

    def cancel(self, request_id: str) -> None:
        """Forget a request; the next step says "cancelled".

        An unknown id is ignored: the request may have ended while the message was on its way.
        """
        sequence = self.scheduler.find(request_id)
        if sequence is None:
            return
        self.scheduler.remove(sequence)
        self._cancelled.append(TokenOutput(request_id, (), finish_reason="cancelled"))

    def step(self) -> StepResult:
        """Compute one step. A failing step fails its own requests, not the engine.

        Raises:
            EngineBroken: ``MAX_CONSECUTIVE_FAILURES`` steps failed in a row.
        """
        cancelled, self._cancelled = self._cancelled, []
        spans = self.scheduler.schedule(self._clock())
        if not spans:
            return StepResult(cancelled, [])
        try:
            tokens = self._runner.run(spans)
        except Exception as error:
            return StepResult(cancelled, self._fail(spans, error))
        self._failed_in_a_row = 0
        self._steps += 1
        spans, chosen, failures = self._without_numbers(spans, tokens)
        outputs = self.scheduler.postprocess(spans, chosen, self._clock())
        return StepResult(cancelled + outputs, failures)

    def _fail(self, spans: list[Span], error: Exception) -> list[RequestFailed]:
        self._failed_in_a_row += 1
        log.error("step failed", requests=len(spans), exc_info=error)
        if self._failed_in_a_row >= MAX_CONSECUTIVE_FAILURES:
            raise EngineBroken(f"{self._failed_in_a_row} steps failed in a row") from error
        for span in spans:
            self.scheduler.remove(span.sequence)
        what = f"the engine could not compute this request: {type(error).__name__}"
        return [RequestFailed(span.sequence.request_id, what, "engine_error") for span in spans]

    def _without_numbers(
        self, spans: list[Span], tokens: list[int | None]
    ) -> tuple[list[Span], list[int], list[RequestFailed]]:
        """Drop the sequences for which the model gave no finite number."""
        kept, chosen, failures = [], [], []
        of_sampling = iter(tokens)
        for span in spans:
            if span.samples:
                token = next(of_sampling)
                if token is None:
                    self.scheduler.remove(span.sequence)
                    what = "the model gave no finite number for the next token"
                    failures.append(RequestFailed(span.sequence.request_id, what, "not_finite"))
                    continue
                chosen.append(token)
            kept.append(span)
        return kept, chosen, failures

    def check_integrity(self) -> None:
        """Compare the books with themselves; cheap enough for every idle second."""
        for problem in self.scheduler.problems():
            self._integrity_errors += 1
            log.error("books inconsistent", problem=problem)

    def stats(self) -> EngineStats:
        """The state now."""
        slots = self.scheduler.slots
        return EngineStats(
            steps=self._steps,
            running=len(self.scheduler.running),
            waiting=len(self.scheduler.waiting),
            kv_tokens_used=self.scheduler.tokens_held,
            kv_tokens_total=slots.count * slots.length,
            device_memory_bytes=self._runner.memory_bytes(),
            prefix_query_tokens=0,
            prefix_hit_tokens=0,
            integrity_errors=self._integrity_errors,
            device_allocated_bytes=self._runner.allocated_bytes(),
        )
