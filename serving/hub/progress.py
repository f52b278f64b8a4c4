"""How far a load is: for the admin API at any time, for the log every few seconds."""

from __future__ import annotations

import time
from typing import Any

import structlog

from serving.engine.messages import Progress

_log = structlog.get_logger(__name__)

LOG_EVERY_SECONDS = 2.0


class LoadProgress:
    """The latest word of the engine that loads a version; call it with each new one.

    Args:
        name: ``model@version``, for the log.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._latest: Progress | None = None
        self._logged_at = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        """Take note; a line in the log if the last one is old enough."""
        self._latest = progress
        now = time.monotonic()
        if now - self._logged_at >= LOG_EVERY_SECONDS:
            self._logged_at = now
            _log.info("load progress", model=self._name, **self._fields(progress))

    def as_json(self) -> dict[str, Any]:
        """Version, phase, bytes done and in all."""
        latest = self._latest or Progress("start", 0, 0)
        return {"version": self._name, **self._fields(latest)}

    @staticmethod
    def _fields(progress: Progress) -> dict[str, Any]:
        return {
            "phase": progress.phase,
            "bytes_done": progress.bytes_done,
            "bytes_total": progress.bytes_total,
        }
