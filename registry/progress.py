"""Progress of long work, told a few times a second whatever the number of threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with (label, bytes done, bytes total)."""

# More often than this and a terminal spends more time drawing than the disk reading.
_INTERVAL_SECONDS = 0.1


class Meter:
    """Adds up bytes from several threads and passes them on at most 10 times a second.

    Args:
        progress: who wants to know; ``None`` makes every call free.
        label: what is being done, for people.
        total: bytes in all.
    """

    def __init__(self, progress: Progress | None, label: str, total: int) -> None:
        self._progress = progress
        self._label = label
        self._total = total
        self._done = 0
        self._next = 0.0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """Count ``count`` more bytes; the last byte is always told."""
        if self._progress is None:
            return
        with self._lock:
            # Mending a damaged file reads it twice; a bar must not pass its end.
            self._done = min(self._done + count, self._total)
            now = time.monotonic()
            if now < self._next and self._done < self._total:
                return
            self._next = now + _INTERVAL_SECONDS
            self._progress(self._label, self._done, self._total)
