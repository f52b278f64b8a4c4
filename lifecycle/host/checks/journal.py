"""Group ``journal``: log lines are kept, and none is dropped (L15)."""

from __future__ import annotations

import re

from lifecycle.host.checks import unit_files
from lifecycle.host.checks.outcome import Group, Outcome, passed, unknown, warned
from lifecycle.host.inspection import Inspection

_MAIN = "/etc/systemd/journald.conf"
_DROP_INS = "/etc/systemd/journald.conf.d/*.conf"
_OURS = "/etc/systemd/journald.conf.d/90-ironworks.conf"
_LEAST_QUOTA = 1 << 30
"""A day of a busy replica is about 100 MB of lines; less than 1 GiB loses a week's record."""
_DEFAULT_BURST = 10_000
"""journald.conf(5)."""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}


def quota(inspection: Inspection) -> Outcome | None:
    """The journal may grow large enough."""
    settings = _settings(inspection)
    if settings is None:
        return None
    text = (settings.get("SystemMaxUse") or [""])[-1]
    found = re.fullmatch(r"(\d+)([KMGTP]?)", text)
    if found is None:
        return passed("SystemMaxUse is the default: a tenth of the disk, at most 4 GiB")
    size = int(found[1]) * _UNITS[found[2]]
    if size < _LEAST_QUOTA:
        return warned(
            f"SystemMaxUse={text}: older lines are deleted early",
            f"[Journal] SystemMaxUse=4G in {_OURS}; sudo systemctl restart systemd-journald",
        )
    return passed(f"SystemMaxUse={text}")


def rate_limit(inspection: Inspection) -> Outcome | None:
    """The rate limit is no tighter than the default."""
    settings = _settings(inspection)
    if settings is None:
        return None
    burst = (settings.get("RateLimitBurst") or [str(_DEFAULT_BURST)])[-1]
    interval = (settings.get("RateLimitIntervalSec") or ["30s"])[-1]
    text = f"RateLimitBurst={burst} in RateLimitIntervalSec={interval}"
    off = re.fullmatch(r"0\D*", interval) is not None or burst == "0"
    if not off and burst.isdecimal() and int(burst) < _DEFAULT_BURST:
        return warned(
            f"{text}: a busy service loses lines",
            f"[Journal] RateLimitBurst=100000 in {_OURS}, or LogRateLimitBurst= in the unit; "
            "sudo systemctl restart systemd-journald",
        )
    return passed("the rate limit is off" if off else text)


def suppressed(inspection: Inspection) -> Outcome | None:
    """No service lost lines to the rate limit in the last day."""
    if not inspection.has_systemd:
        return None
    ran = inspection.journal_suppressed
    lines = [line for line in ran.stdout.splitlines() if line.startswith("Suppressed ")]
    if lines:
        return warned(
            f"in the last day, {len(lines)} times; the last: {lines[-1].strip()}",
            f"[Journal] RateLimitBurst=100000 in {_OURS}, or LogRateLimitBurst= in the unit; "
            "then find out why it writes so much",
        )
    # With -g, journalctl ends with 1 where nothing matches.
    if ran.exit_code not in (0, 1) or "permission" in ran.stderr.lower():
        return unknown(ran.why, "run as root, or add the user to the group systemd-journal")
    return passed("no line was suppressed in the last day")


def _settings(inspection: Inspection) -> unit_files.Settings | None:
    host = inspection.host
    if not inspection.has_systemd:
        return None
    settings: unit_files.Settings = {}
    for path in (_MAIN, *host.glob(_DROP_INS)):
        unit_files.parse(host.read(path) or "", settings)
    return settings


GROUP = Group("journal", "journald", (quota, rate_limit, suppressed))
