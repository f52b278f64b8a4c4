"""One step's spans as tensors: what the model, the KV pool and the attention hook share."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from serving.engine.sequence import Span


@dataclass(frozen=True)
class AttentionSpan:
    """Where one span's queries are in the batch, and its keys in the pool."""

    begin: int
    """First query, an index into the batch's tokens."""
    end: int
    row: int
    """First row of the sequence's slot in the pool."""
    keys: int
    """Keys visible to the span's last query; query ``i`` sees ``keys - count + i + 1``."""
    mask: torch.Tensor | None
    """bool [count, keys], True = visible; None where "causal from the start" says it all."""


@dataclass(frozen=True)
class RaggedBatch:
    """Spans of several sequences packed one after another, T tokens in all.

    Packing instead of padding: a step costs what its tokens cost, and a token's numbers
    come from its own sequence only.
    """

    input_ids: torch.Tensor
    """int64 [1, T]."""
    position_ids: torch.Tensor
    """int64 [1, T], counted within each sequence."""
    rows: torch.Tensor
    """int64 [T]: the pool row that each token's key and value go to."""
    last: torch.Tensor
    """int64 [S]: the last token of each span that samples."""
    spans: tuple[AttentionSpan, ...]

    @classmethod
    def pack(cls, spans: list[Span], slot_length: int, device: torch.device) -> RaggedBatch:
        """Lay out the spans; ``slot_length`` is the pool rows of one slot."""
        tokens: list[int] = []
        positions: list[int] = []
        rows: list[int] = []
        last: list[int] = []
        attention: list[AttentionSpan] = []
        for span in spans:
            begin = len(tokens)
            row = span.sequence.slot * slot_length
            tokens += span.sequence.token_ids[span.start : span.end]
            positions += range(span.start, span.end)
            rows += range(row + span.start, row + span.end)
            mask = _chunk_mask(span, device) if span.start and span.count > 1 else None
            attention.append(AttentionSpan(begin, len(tokens), row, span.end, mask))
            if span.samples:
                last.append(len(tokens) - 1)

        def tensor(values: list[int]) -> torch.Tensor:
            return torch.tensor(values, dtype=torch.int64, device=device)

        return cls(
            input_ids=tensor(tokens)[None],
            position_ids=tensor(positions)[None],
            rows=tensor(rows),
            last=tensor(last),
            spans=tuple(attention),
        )


def _chunk_mask(span: Span, device: torch.device) -> torch.Tensor:
    """Causal mask of a prompt's later chunk: its queries start at ``span.start``, not at 0."""
    shape = (span.count, span.end)
    return torch.ones(shape, dtype=torch.bool, device=device).tril(span.start)
