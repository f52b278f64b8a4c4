"""Who computes what in the next step: continuous batching with slots, no torch.

Every running sequence decodes one token in each step; what is left of the token budget
goes to prompts, first come first served, in chunks. So a long prompt can't stall the
others' next token by more than one step of bounded size.
"""

from __future__ import annotations

from collections import deque

from serving.engine.messages import TokenOutput
from serving.engine.sequence import Sequence, Span
from serving.engine.slots import SlotPool


class Scheduler:
    """Holds all sequences: waiting in a queue, or running with a slot each."""

    def __init__(self, slots: SlotPool, max_batch_tokens: int) -> None:
        self.slots = slots
        # Below one token per slot the last decodes of a full batch would starve.
        self.max_batch_tokens = max(max_batch_tokens, slots.count)
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    @property
    def busy(self) -> bool:
        """Whether there is anything to compute."""
        return bool(self.waiting or self.running)

    @property
    def tokens_held(self) -> int:
        """Tokens whose keys and values are in the pool."""
        return sum(sequence.computed for sequence in self.running)

    def find(self, request_id: str) -> Sequence | None:
        """The sequence of a request, wherever it is."""
        for sequence in (*self.running, *self.waiting):
            if sequence.request_id == request_id:
                return sequence
        return None

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence."""
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence, in the queue or running; its slot is free at once."""
        if sequence in self.running:
            self.running.remove(sequence)
            self.slots.give_back(sequence.slot)
        else:
            self.waiting.remove(sequence)

    def schedule(self, now: float) -> list[Span]:
        """Choose the next step's spans; sequences that get a slot start running.

        Args:
            now: monotonic seconds, kept as the start of sequences that begin.

        Returns:
            Spans of at most ``max_batch_tokens`` tokens together; empty when idle.
        """
        decodes = [sequence for sequence in self.running if sequence.prefilled]
        prefills = [sequence for sequence in self.running if not sequence.prefilled]
        spans = [Span(sequence, sequence.computed, 1) for sequence in decodes]
        budget = self.max_batch_tokens - len(spans)
        while budget > 0:
            if not prefills:
                admitted = self._admit(now)
                if admitted is None:
                    break
                prefills.append(admitted)
            sequence = prefills.pop(0)
            count = min(sequence.remaining, budget)
            spans.append(Span(sequence, sequence.computed, count))
            budget -= count
        return spans

    def _admit(self, now: float) -> Sequence | None:
        if not self.waiting:
            return None
        slot = self.slots.take()
        if slot is None:
            return None
        sequence = self.waiting.popleft()
        sequence.slot = slot
        sequence.started = now
        self.running.append(sequence)
        return sequence

    def postprocess(self, spans: list[Span], tokens: list[int], now: float) -> list[TokenOutput]:
        """Record a computed step.

        Args:
            spans: what was computed.
            tokens: the token chosen for each span that samples, in their order.
            now: monotonic seconds at the end of the step.

        Returns:
            One output for each chosen token. Finished sequences are gone from the scheduler.
        """
        outputs = []
        chosen = iter(tokens)
        for span in spans:
            sequence = span.sequence
            samples, first = span.samples, not sequence.prefilled
            sequence.computed = span.end
            if not samples:
                continue
            token_id = next(chosen)
            reason = sequence.append(token_id)
            if reason is not None:
                self.remove(sequence)
            started = sequence.started if sequence.started is not None else now
            outputs.append(
                TokenOutput(
                    request_id=sequence.request_id,
                    token_ids=(token_id,),
                    finish_reason=reason,
                    queue_seconds=started - sequence.arrived if first else None,
                    prefill_seconds=now - started if first else None,
                    logprobs=sequence.logprobs,
                )
            )
        return outputs

    def problems(self) -> list[str]:
        """What is inconsistent in the books; empty when all is well."""
        found = self.slots.problems([sequence.slot for sequence in self.running])
        for sequence in self.running:
            if not 0 <= sequence.computed < len(sequence.token_ids) <= self.slots.length:
                found.append(f"slot {sequence.slot}: {sequence.computed} tokens computed")
        found.extend("a waiting request holds a slot" for s in self.waiting if s.slot >= 0)
        return found
