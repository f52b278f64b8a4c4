"""The measurements of one sequence, taken as its tokens come."""

from __future__ import annotations

import time

from serving.engine.messages import TokenOutput
from serving.telemetry.metrics import ServingMetrics


class SequenceMeter:
    """Count one sequence's tokens and times into the metrics.

    Tokens are counted as they arrive, so those of a client that hangs up are counted too.

    Args:
        metrics: where to.
        model: registry name of the model.
        endpoint: route, e.g. ``/v1/chat/completions``.
        prompt_tokens: length of the prompt.
        arrived: ``time.perf_counter()`` at which the request arrived.
    """

    def __init__(
        self,
        metrics: ServingMetrics,
        *,
        model: str,
        endpoint: str,
        prompt_tokens: int,
        arrived: float,
    ) -> None:
        self._metrics = metrics
        self._model = model
        self._arrived = arrived
        self._first = 0.0
        self._latest = 0.0
        self.prompt_tokens = prompt_tokens
        self.generated_tokens = 0
        self.generated_ids: list[int] = []
        self.finish_reason: str | None = None
        """None until the sequence has ended by itself."""
        # Looking a label up costs more than counting: once per sequence, not per token.
        self._article_tokens = metrics.generate_tokens.labels(model, endpoint)
        self._tokens = metrics.generation_tokens.labels(model)
        self._inter_token = metrics.inter_token.labels(model)
        metrics.prompt_tokens.labels(model).inc(prompt_tokens)
        metrics.prompt_length.labels(model).observe(prompt_tokens)

    @property
    def first_token_seconds(self) -> float | None:
        """From arrival to the first token; None before it."""
        return self._first - self._arrived if self.generated_tokens else None

    @property
    def seconds(self) -> float:
        """From arrival to the newest token; before the first one, until now."""
        return (self._latest if self.generated_tokens else time.perf_counter()) - self._arrived

    @property
    def token_seconds(self) -> float | None:
        """Mean time of the tokens after the first; None where there are none."""
        if self.generated_tokens < 2:
            return None
        return (self._latest - self._first) / (self.generated_tokens - 1)

    def output(self, output: TokenOutput) -> None:
        """Take one engine output into account."""
        count = len(output.token_ids)
        if not count:
            return
        now = time.perf_counter()
        if self.generated_tokens == 0:
            self._first = now
            self._first_token(output)
        else:
            self._inter_token.observe(now - self._latest)
        self._latest = now
        self.generated_tokens += count
        self.generated_ids += output.token_ids
        self._article_tokens.inc(count)
        self._tokens.inc(count)

    def finish(self, reason: str) -> None:
        """The sequence ended by itself, ``reason`` being ``stop`` or ``length``."""
        self.finish_reason = reason
        model, metrics = self._model, self._metrics
        now = time.perf_counter()
        metrics.request_success.labels(model, reason).inc()
        metrics.e2e.labels(model).observe(now - self._arrived)
        metrics.generation_length.labels(model).observe(self.generated_tokens)
        if self.generated_tokens:
            metrics.decode_time.labels(model).observe(self._latest - self._first)
        if self.token_seconds is not None:
            metrics.per_token.labels(model).observe(self.token_seconds)

    def _first_token(self, output: TokenOutput) -> None:
        model, metrics = self._model, self._metrics
        metrics.first_token.labels(model).observe(self._first - self._arrived)
        if output.queue_seconds is not None:
            metrics.queue_time.labels(model).observe(output.queue_seconds)
        if output.prefill_seconds is not None:
            metrics.prefill_latency.labels(model).observe(output.prefill_seconds)
            metrics.prefill_time.labels(model).observe(output.prefill_seconds)
