"""Group ``network``: the way of a connection into the server."""

from __future__ import annotations

from lifecycle.host.checks.outcome import Group, Outcome, passed, unknown, warned
from lifecycle.host.inspection import Inspection

OVERFLOWS = "ListenOverflows"


def accept_backlog(inspection: Inspection) -> Outcome:
    """The kernel grants the backlog that the server asks for (L12)."""
    text = inspection.host.read("/proc/sys/net/core/somaxconn")
    if text is None:
        return unknown("/proc/sys/net/core/somaxconn is not readable")
    limit, wanted = int(text), inspection.expected.serving.backlog
    if limit < wanted:
        return warned(
            f"net.core.somaxconn is {limit}: the server asks for a backlog of {wanted} and gets "
            f"{limit}",
            "sudo sysctl -w net.core.somaxconn=4096; to keep it: a line in "
            "/etc/sysctl.d/90-ironworks.conf; then restart the replicas",
        )
    return passed(f"net.core.somaxconn is {limit}, the server asks for {wanted}")


def listen_overflows(inspection: Inspection) -> Outcome:
    """No connection was dropped for a full accept queue since the last look (L12)."""
    now = inspection.tcp_counters.get(OVERFLOWS)
    if now is None:
        return unknown(f"/proc/net/netstat has no TcpExt:{OVERFLOWS}")
    since = inspection.counters.get(OVERFLOWS)
    grown = now - (since or 0)
    when = "since boot" if since is None else "since the last verification"
    if grown > 0:
        return warned(
            f"TcpExt:{OVERFLOWS} grew by {grown} {when}: connections were dropped before accept",
            "raise net.core.somaxconn and the server's backlog; see `ss -ltn`: Recv-Q is what "
            "waits, Send-Q the limit",
        )
    return passed(f"TcpExt:{OVERFLOWS} has not grown {when}")


def retries(inspection: Inspection) -> Outcome | None:
    """How long a dead peer holds a connection (L13): told, never changed."""
    text = inspection.host.read("/proc/sys/net/ipv4/tcp_retries2")
    if text is None:
        return None
    return passed(f"net.ipv4.tcp_retries2 is {text.strip()} (15, the default, is about 925 s)")


GROUP = Group("network", "network", (accept_backlog, listen_overflows, retries))
