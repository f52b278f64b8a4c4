"""The kernel's log since boot: from ``/dev/kmsg``, else from the journal."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lifecycle.host.host import Host, HostAccessError

_JOURNAL = ("journalctl", "--dmesg", "--boot", "--no-pager", "--output", "short-monotonic")

# "PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;text", kernel documentation ABI/testing/dev-kmsg.
_RECORD = re.compile(r"^(\d+),(\d+),(\d+),[^;]*;(.*)$")
# "[   12.345678] host kernel: text"
_JOURNAL_LINE = re.compile(r"^\[\s*(\d+\.\d+)\] \S+ kernel: (.*)$")


@dataclass(frozen=True)
class KernelLine:
    """One line of the kernel's log.

    Attributes:
        seconds: since boot.
        sequence: its number since boot; in the journal, its position.
        text: without the prefix.
    """

    seconds: float
    sequence: int
    text: str


def read(host: Host) -> list[KernelLine]:
    """Every line that the kernel still holds, oldest first.

    Raises:
        HostAccessError: neither the device nor the journal may be read by this user.
    """
    try:
        text = host.read_records("/dev/kmsg")
    except HostAccessError:
        text = None
    if text is not None:
        return parse(text)
    ran = host.run(_JOURNAL)
    if not ran.ok:
        raise HostAccessError(
            "the kernel's log can't be read",
            where=f"/dev/kmsg; {ran.why}",
            fix="run as root, or add the user to the group systemd-journal",
        )
    return _parse_journal(ran.stdout)


def parse(text: str) -> list[KernelLine]:
    """Read records in the format of ``/dev/kmsg``; continuation lines are passed over."""
    found = []
    for line in text.splitlines():
        if match := _RECORD.match(line):
            _, sequence, microseconds, message = match.groups()
            found.append(KernelLine(int(microseconds) / 1e6, int(sequence), message))
    return found


def _parse_journal(text: str) -> list[KernelLine]:
    found = []
    for number, line in enumerate(text.splitlines()):
        if match := _JOURNAL_LINE.match(line):
            found.append(KernelLine(float(match[1]), number, match[2]))
    return found
