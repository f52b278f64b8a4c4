"""Stop strings: found wherever the stream is cut, never shown, not even in part."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Pass text on until one of ``stops`` appears in it.

    Text that may be the beginning of a stop string is held back, at most
    ``max(len(stop)) - 1`` characters. The stop string that ends first wins (the longest of
    those that end together), so the result does not depend on how the text was cut.

    Args:
        stops: non-empty strings; none at all makes this a pass-through.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if "" in stops:
            raise ValueError("a stop string is empty")
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False
        """True once a stop string was found; later text is dropped."""

    def push(self, text: str) -> str:
        """Add text; return what may be shown now."""
        if self.stopped:
            return ""
        if not self._stops:
            return text
        text = self._held + text
        start = self._match(text)
        if start is not None:
            self.stopped = True
            self._held = ""
            return text[:start]
        kept = self._possible_beginning(text)
        shown, self._held = text[: len(text) - kept], text[len(text) - kept :]
        return shown

    def flush(self) -> str:
        """Return the text held back, once no more will come."""
        held, self._held = self._held, ""
        return held

    def _match(self, text: str) -> int | None:
        """Start of the stop string that ends first in ``text``."""
        found = [
            (start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0
        ]
        return min(found)[1] if found else None

    def _possible_beginning(self, text: str) -> int:
        """Length of the longest end of ``text`` with which some stop string begins."""
        return max(
            next(
                (
                    size
                    for size in range(min(len(stop) - 1, len(text)), 0, -1)
                    if text.endswith(stop[:size])
                ),
                0,
            )
            for stop in self._stops
        )
