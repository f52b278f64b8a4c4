"""The engine's half of a load: read and verify, then place, prove and be ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog
import torch

from registry.errors import InputError
from serving.engine.attention import NAME
from serving.engine.device import open_device
from serving.engine.engine import Engine
from serving.engine.messages import FileDigest, Load, LoadPhase, Ready
from serving.engine.runner import ModelRunner
from serving.engine.selfcheck import check_hooks
from serving.engine.sequence import ModelLimits
from serving.loading.inventory import check_files
from serving.loading.model import LoadedModel, build_model
from serving.loading.reading import CheckpointBytes, read_checkpoint

log = structlog.get_logger(__name__)

TellProgress = Callable[[LoadPhase, int, int], None]


@dataclass
class ModelLoad:
    """One load, phase by phase; ``phase`` says where it is when it fails.

    Args:
        request: what to load.
        progress: told (phase, bytes done, bytes in all).
    """

    request: Load
    progress: TellProgress
    phase: LoadPhase = "start"
    seconds: dict[str, float] = field(default_factory=dict)
    _checkpoint: CheckpointBytes | None = None
    _device: torch.device | None = None

    def verify(self) -> tuple[FileDigest, ...]:
        """Check and read all files; returns their digests, which are the manifest's.

        Raises:
            InputError: a field of the request is out of range.
            CheckpointError: an unsafe or damaged directory.
            IntegrityError: bytes that are not the manifest's.
        """
        request, directory = self.request, Path(self.request.model_dir)
        with self._timed("check"):
            _check_sizes(request)
            self._device = open_device(request.device, request.threads)
            check_files(directory, request.files)
        with self._timed("read"):
            self._checkpoint = read_checkpoint(
                directory,
                request.files,
                self._device,
                lambda done, total: self.progress("read", done, total),
            )
        return self._checkpoint.files

    def start(self) -> tuple[Engine, Ready]:
        """Place the verified weights, prove the hooks on them, and make the engine.

        Raises:
            CheckpointError: an unsupported architecture, or tensors that don't fit it.
            InputError: the KV pool does not fit into memory.
        """
        assert self._checkpoint is not None and self._device is not None, "verify() comes first"
        request = self.request
        with self._timed("place"):
            loaded = build_model(
                self._checkpoint, device=self._device, dtype=request.dtype, attention=NAME
            )
            self._checkpoint = None
        limits = _limits(loaded, request.max_model_len)
        with self._timed("warmup"):
            runner = ModelRunner(
                loaded.model, max_slots=request.max_slots, max_model_len=limits.max_model_len
            )
            difference = _warm(runner, limits)
        log.info("model ready", architecture=loaded.architecture, self_check=difference)
        engine = Engine(
            runner,
            limits,
            max_slots=request.max_slots,
            max_batch_tokens=request.max_batch_tokens,
        )
        self.phase = "serving"
        return engine, Ready(
            device=str(self._device),
            dtype=loaded.dtype,
            max_model_len=limits.max_model_len,
            max_slots=request.max_slots,
            vocab_size=limits.vocab_size,
            eos_token_ids=limits.eos_token_ids,
            weight_bytes=loaded.weight_bytes,
            kv_bytes=runner.pool.bytes,
            seconds=dict(self.seconds),
        )

    @contextmanager
    def _timed(self, phase: LoadPhase) -> Iterator[None]:
        self.phase = phase
        self.progress(phase, 0, 0)
        started = time.monotonic()
        yield
        self.seconds[phase] = time.monotonic() - started


def _check_sizes(request: Load) -> None:
    for name in ("max_slots", "max_batch_tokens"):
        if getattr(request, name) < 1:
            raise InputError(f"{name} must be at least 1", where=name)
    for name in ("max_model_len", "threads"):
        if getattr(request, name) < 0:
            raise InputError(f"{name} must not be negative", where=name)
    if request.max_model_len == 1:
        raise InputError("max_model_len leaves no room for an answer", where="max_model_len")


def _limits(loaded: LoadedModel, max_model_len: int) -> ModelLimits:
    length = min(max_model_len or loaded.context_length, loaded.context_length)
    return ModelLimits(loaded.vocab_size, length, loaded.eos_token_ids)


def _warm(runner: ModelRunner, limits: ModelLimits) -> float:
    try:
        return check_hooks(runner, limits)
    except MemoryError as error:
        slots = runner.pool.pool_layers[0].rows // runner.pool.slot_length
        raise InputError(
            f"the KV pool of {slots} × {limits.max_model_len} tokens does not fit into memory",
            where="max_slots, max_model_len",
            fix="lower one of them",
        ) from error
