"""What the stack tells the person in front of it: short lines, at once, terminal or not."""

from __future__ import annotations

import time


class Report:
    """Prints headings with the seconds since the start, and indented details."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def step(self, text: str) -> None:
        """Begin a step."""
        print(f"[{time.monotonic() - self._started:6.1f} s] {text}", flush=True)

    def detail(self, text: str) -> None:
        """Tell something of the step that runs."""
        print(f"             {text}", flush=True)
