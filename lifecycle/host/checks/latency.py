"""Group ``latency``: where a spike comes from (L19): network, kernel, GPU or our own queue.

Unlike the other groups it looks at this very moment, so it belongs to ``ironworks doctor``
and not to the daily verification.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from lifecycle.host.checks.network import OVERFLOWS
from lifecycle.host.checks.outcome import Group, Outcome, passed, warned
from lifecycle.host.inspection import Inspection, paired_counters

_SLOWDOWNS = 0x20 | 0x08 | 0x40 | 0x80
"""nvmlClocksEventReasons: software thermal, and the three of the hardware."""


@dataclass(frozen=True)
class Signal:
    """One thing that makes answers late.

    Attributes:
        name: of what was measured, with its source.
        normal: what it is on a quiet machine.
        seen: what it is now.
        high: whether it explains a spike.
        fix: what to do when it does.
    """

    dimension: str
    name: str
    normal: str
    seen: str
    high: bool
    fix: str


def signals(inspection: Inspection) -> list[Signal]:
    """Everything that could be measured, by dimension."""
    return [*_network(inspection), *_kernel(inspection), *_gpu(inspection), *_queue(inspection)]


def _network(inspection: Inspection) -> Iterator[Signal]:
    established = inspection.host.run(["ss", "-tinH", "state", "established"])
    ports = _ports(inspection)
    rtts, resent, connections = [], 0, 0
    for header, details in _pairs(established.stdout):
        local = re.search(r":(\d+)\s", header)
        if local is None or int(local[1]) not in ports:
            continue
        connections += 1
        if rtt := re.search(r"\brtt:([\d.]+)/", details):
            rtts.append(float(rtt[1]))
        # retrans:NOW/TOTAL (ss(8)); a connection that never resent has none.
        resent += re.search(r"\bretrans:[1-9]\d*/", details) is not None
    if rtts:
        middle = median(rtts)
        fix = "the way to the clients is slow: mtr to one of them; a nearer proxy"
        yield Signal("network", "rtt (ss -ti)", "< 50 ms", f"{middle:.1f} ms", middle >= 50, fix)
    if connections:
        share = resent / connections
        fix = "packets are lost: ip -s link, ethtool -S; look at cable, switch and firewall"
        text = f"{resent} of {connections}"
        yield Signal("network", "retransmitting now", "< 2 %", text, share > 0.02, fix)
    counters = paired_counters(inspection.host.read("/proc/net/snmp") or "", "Tcp")
    if sent := counters.get("OutSegs"):
        share = 100 * counters.get("RetransSegs", 0) / sent
        fix = "packets are lost: ip -s link, ethtool -S; look at cable, switch and firewall"
        yield Signal("network", "resent since boot", "< 1 %", f"{share:.2f} %", share > 1, fix)


def _kernel(inspection: Inspection) -> Iterator[Signal]:
    listening = inspection.host.run(["ss", "-ltnH"])
    ports = _ports(inspection)
    for line in listening.stdout.splitlines():
        words = line.split()
        if len(words) < 4 or int(words[3].rpartition(":")[2] or 0) not in ports:
            continue
        waiting, limit = int(words[1]), int(words[2])
        yield Signal(
            "kernel",
            f"accept queue of {words[3]} (ss -ltn)",
            f"Recv-Q < {limit // 2}",
            f"Recv-Q {waiting}, Send-Q {limit}",
            waiting >= max(1, limit // 2),
            "the server accepts too slowly: see cpu pressure; raise net.core.somaxconn only "
            "when the limit is low",
        )
    if (overflows := inspection.tcp_counters.get(OVERFLOWS)) is not None:
        grown = overflows - inspection.counters.get(OVERFLOWS, 0)
        fix = "raise net.core.somaxconn and the backlog, restart the replicas"
        yield Signal("kernel", "dropped before accept", "0", str(grown), grown > 0, fix)
    for name, limit, fix in (
        ("cpu", 25, "fewer threads per engine (IRONWORKS_THREADS), or fewer engines per host"),
        ("memory", 5, "memory is short: see `ironworks doctor memory`; swap costs every token"),
        ("io", 25, "a disk is slow: iostat -x; loads and backups at quiet times"),
    ):
        text = inspection.host.read(f"/proc/pressure/{name}") or ""
        if found := re.search(r"^some avg10=([\d.]+)", text, re.MULTILINE):
            share = float(found[1])
            where = f"{name} pressure, 10 s"
            yield Signal("kernel", where, f"< {limit} %", f"{share:.1f} %", share > limit, fix)


def _gpu(inspection: Inspection) -> Iterator[Signal]:
    for gpu in inspection.nvml.gpus:
        label = f"GPU {gpu.index}"
        if gpu.clock_reasons is not None:
            fix = "check cooling and power (group gpu)"
            seen = f"0x{gpu.clock_reasons:x}"
            high = bool(gpu.clock_reasons & _SLOWDOWNS)
            yield Signal("gpu", f"{label} clock reasons", "no slowdown", seen, high, fix)
        if gpu.temperature_celsius is not None:
            limit = inspection.expected.gpu.max_temperature_celsius
            degrees = gpu.temperature_celsius
            fix = "check air flow, fans and filters"
            high = degrees >= limit
            yield Signal("gpu", f"{label} temperature", f"< {limit} °C", f"{degrees} °C", high, fix)
        if gpu.memory_used_bytes is not None and gpu.memory_total_bytes:
            share = 100 * gpu.memory_used_bytes / gpu.memory_total_bytes
            fix = "less KV cache, or another card: the allocator retries and waits when full"
            yield Signal("gpu", f"{label} memory", "< 98 %", f"{share:.0f} %", share >= 98, fix)


def _queue(inspection: Inspection) -> Iterator[Signal]:
    for process in inspection.serving:
        if process.kind != "replica":
            continue
        text = inspection.metrics(process)
        waiting = _sum(text, "ironworks_num_requests_waiting")
        usage = _sum(text, "ironworks_kv_cache_usage_perc")
        if waiting is not None:
            fix = "more replicas (job scale_replicas); the queue is ours, not the machine's"
            name = f"{process.service} waiting requests"
            yield Signal("queue", name, "0", f"{waiting:.0f}", waiting > 0, fix)
        if usage is not None:
            fix = "more replicas, or more slots (IRONWORKS_MAX_SLOTS) where memory allows"
            name = f"{process.service} KV cache"
            yield Signal("queue", name, "< 90 %", f"{100 * usage:.0f} %", usage >= 0.9, fix)


def network(inspection: Inspection) -> Outcome | None:
    """Clients and the way to them are not the cause."""
    return _judge(list(_network(inspection)))


def kernel(inspection: Inspection) -> Outcome | None:
    """Accept queues and pressure are not the cause."""
    return _judge(list(_kernel(inspection)))


def gpu(inspection: Inspection) -> Outcome | None:
    """Slowed clocks and a full memory are not the cause."""
    return _judge(list(_gpu(inspection)))


def queue(inspection: Inspection) -> Outcome | None:
    """Our own queue is not the cause."""
    return _judge(list(_queue(inspection)))


def _judge(found: list[Signal]) -> Outcome | None:
    high = [signal for signal in found if signal.high]
    if high:
        seen = "; ".join(f"{s.name} {s.seen} (normal {s.normal})" for s in high)
        return warned(seen, high[0].fix)
    if not found:
        return None
    return passed("; ".join(f"{signal.name} {signal.seen}" for signal in found))


def _ports(inspection: Inspection) -> set[int]:
    return {process.port for process in inspection.serving if process.port is not None}


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """``ss -i`` writes a connection in two lines; the second is indented."""
    header = ""
    for line in text.splitlines():
        if line[:1].isspace():
            yield header, line
        else:
            header = line


def _sum(metrics: str, name: str) -> float | None:
    found = re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", metrics, re.MULTILINE)
    return sum(float(value) for value in found) if found else None


GROUP = Group("latency", "latency, now", (network, kernel, gpu, queue))
