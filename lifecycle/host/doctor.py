"""``ironworks doctor``: what is wrong here, with evidence and fix; by topic, in more detail."""

from __future__ import annotations

from collections.abc import Sequence

from lifecycle.host.checks import gpu, latency, serving
from lifecycle.host.checks.disk import SHARED_MEMORY
from lifecycle.host.checks.outcome import Group
from lifecycle.host.inspection import Inspection
from lifecycle.host.report import HostReport
from lifecycle.host.verify import GROUPS, Progress, verify
from registry.errors import InputError

ALL: tuple[Group, ...] = (*GROUPS, latency.GROUP)

_TOPICS: dict[str, tuple[Group, ...]] = {
    **{group.name: (group,) for group in ALL},
    "memory": (serving.GROUP, SHARED_MEMORY, gpu.GROUP),
}


def topics() -> list[str]:
    """What can be asked about."""
    return sorted(_TOPICS)


def diagnose(
    inspection: Inspection, topic: str = "", progress: Progress | None = None
) -> HostReport:
    """Run the checks of a topic, or all of them.

    Raises:
        InputError: there is no such topic.
    """
    groups: Sequence[Group] = ALL
    if topic:
        if topic not in _TOPICS:
            raise InputError(
                "there is no such topic", where=topic[:80], fix=f"one of {', '.join(topics())}"
            )
        groups = _TOPICS[topic]
    return verify(inspection, groups, progress)
