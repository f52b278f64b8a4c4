"""Time as the record plane keeps it: integer microseconds since 1970, UTC."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from decimal import Decimal

from registry.errors import InputError


def now_us() -> int:
    """Return the current time in microseconds."""
    return time.time_ns() // 1000


def parse_time(text: str) -> int:
    """Read a point in time: ``now``, ISO 8601 (UTC unless it says), or unix seconds.

    Returns:
        Microseconds since 1970.

    Raises:
        InputError: it is none of these.
    """
    text = text.strip()
    if text.lower() == "now":
        return now_us()
    try:
        if re.fullmatch(r"\d{1,11}(\.\d{1,9})?", text):
            return int(Decimal(text) * 1_000_000)
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(
            f"{text[:40]!r} is not a time",
            fix="use ISO 8601 such as 2026-01-31T12:00:00Z, unix seconds, or now",
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def iso(us: int) -> str:
    """Write microseconds since 1970 as ISO 8601 in UTC, such as ``2026-01-31T12:00:00.000000Z``."""
    moment = datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
