"""Runs steps on Hugging Face's model code through the two hooks."""

from __future__ import annotations

import psutil
import torch
from transformers import PreTrainedModel

from serving.engine.batch import RaggedBatch
from serving.engine.kv_pool import KvPool
from serving.engine.sampler import choose, logprobs_of
from serving.engine.sequence import Span


class ModelRunner:
    """Computes spans with a model whose attention is ``serving.engine.attention``'s.

    Args:
        model: in eval mode, its attention implementation set to ``attention.NAME``.
        max_slots: sequences the KV pool has room for.
        max_model_len: tokens of each.
    """

    def __init__(self, model: PreTrainedModel, *, max_slots: int, max_model_len: int) -> None:
        self.model = model
        self.device = model.device
        self.pool = KvPool(model.config.num_hidden_layers, max_slots, max_model_len)

    @torch.inference_mode()
    def logits(self, spans: list[Span]) -> torch.Tensor:
        """Compute the spans: [S, vocabulary], one row for each span that samples."""
        batch = RaggedBatch.pack(spans, self.pool.slot_length, self.device)
        self.pool.write_to(batch.rows)
        output = self.model(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            cache=self.pool,
            use_cache=True,
            logits_to_keep=batch.last,
            ragged_batch=batch,
        )
        logits: torch.Tensor = output.logits[0]
        return logits

    @torch.inference_mode()
    def run(self, spans: list[Span]) -> list[int | None]:
        """See :class:`serving.engine.engine.Runner`."""
        logits = self.logits(spans)
        sampling = [span.sequence for span in spans if span.samples]
        tokens = choose(
            logits,
            [sequence.sampling for sequence in sampling],
            [s.random.random() if s.sampling.temperature > 0 else 0.0 for s in sampling],
        )
        for sequence, row, token in zip(sampling, logits, tokens, strict=True):
            if sequence.sampling.top_logprobs and token is not None:
                sequence.logprobs = logprobs_of(row, token, sequence.sampling.top_logprobs)
        return tokens

    def allocated_bytes(self) -> int | None:
        """Bytes of live tensors on the device; None on CPU."""
        if self.device.type != "cuda":
            return None
        return torch.cuda.memory_allocated(self.device)

    def memory_bytes(self) -> int:
        """Bytes held on the device: the allocator's reserve, or on CPU the resident set."""
        if self.device.type == "cuda":
            return torch.cuda.memory_reserved(self.device)
        resident: int = psutil.Process().memory_info().rss
        return resident
