"""Keys and values of all slots: the first hook into Hugging Face's model code, a ``Cache``.

The model hands each layer's new keys and values to ``update``, which writes them to the
pool's rows and returns the whole layer; the attention hook reads from it what each span
may see. Rows are flat (slot × length), so that blocks can replace slots without touching
the model side.
"""

from __future__ import annotations

from typing import Any

import psutil
import torch
from transformers.cache_utils import Cache, CacheLayerMixin


class PoolLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer's rows: keys and values, each [rows, KV heads, head size]."""

    is_sliding = False

    def __init__(self, rows: int, layers: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rows = rows
        self.layers = layers
        self.targets: torch.Tensor | None = None
        """int64 [T]: rows that the step's tokens go to."""

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate for the heads and dtype the model really uses, on its device.

        Raises:
            MemoryError: the whole pool would exceed the host's free memory.
        """
        per_row = key_states[0, :, 0].nbytes + value_states[0, :, 0].nbytes
        if key_states.device.type == "cpu":
            # The kernel promises more than it has, and kills whoever takes it at its word.
            _require_free(self.layers * self.rows * per_row)
        # Not zeroed: only rows that were written are ever read, and on CPU the pages of
        # rows never written cost nothing.
        self.keys = key_states.new_empty((self.rows, key_states.shape[1], key_states.shape[3]))
        self.values = value_states.new_empty(
            (self.rows, value_states.shape[1], value_states.shape[3])
        )
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write [1, KV heads, T, head size] and return the layer's whole keys and values."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None and self.targets is not None
        self.keys.index_copy_(0, self.targets, key_states[0].transpose(0, 1))
        self.values.index_copy_(0, self.targets, value_states[0].transpose(0, 1))
        return self.keys, self.values

    # Asked only by mask building and by default positions, both of which we replace.
    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Keys and offset of an unmasked step."""
        return query_length, 0

    def get_seq_length(self) -> int:
        """Always 0: positions are given with each step."""
        return 0

    def get_max_length(self) -> int:
        """Rows in all."""
        return self.rows


def _require_free(size: int) -> None:
    free = psutil.virtual_memory().available
    if size > free:
        raise MemoryError(f"{size} bytes of keys and values, {free} bytes free")


class KvPool(Cache):
    """The pool of a model with ``layers`` layers: ``slots`` × ``slot_length`` rows each."""

    def __init__(self, layers: int, slots: int, slot_length: int) -> None:
        self.slot_length = slot_length
        self.pool_layers = [PoolLayer(slots * slot_length, layers) for _ in range(layers)]
        super().__init__(layers=list(self.pool_layers))

    def write_to(self, rows: torch.Tensor) -> None:
        """Say where the coming step's tokens go: int64 [T]."""
        for layer in self.pool_layers:
            layer.targets = rows

    @property
    def bytes(self) -> int:
        """Bytes allocated so far; layers allocate at their first step."""
        tensors = [t for layer in self.pool_layers for t in (layer.keys, layer.values)]
        return sum(tensor.nbytes for tensor in tensors if tensor is not None)
