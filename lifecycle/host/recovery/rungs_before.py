"""Rungs 1 to 4: make sure that it is broken, and that nothing holds the GPU."""

from __future__ import annotations

from dataclasses import replace

from lifecycle.host.host import Host
from lifecycle.host.nvml import PROBE_SECONDS
from lifecycle.host.recovery import record, replicas
from lifecycle.host.recovery.climb import Climb, Site, Verdict
from lifecycle.host.recovery.diagnosis import Course, Diagnosis, diagnose
from lifecycle.host.recovery.holders import Holder, holders, refcounts
from lifecycle.host.watch import look, uptime

CONFIRM_SECONDS = 20.0
DRAIN_SECONDS = 5.0
UNITS_SECONDS = 5.0
STOP_SECONDS = UNITS_SECONDS + replicas.STOP_SECONDS
HOLDER_SECONDS = 3.0

# Units that hold a GPU open: the driver's own daemons and the usual exporters.
UNITS = (
    "nvidia-persistenced.service",
    "nvidia-fabricmanager.service",
    "nvidia-dcgm.service",
    "dcgm-exporter.service",
    "nvidia-powerd.service",
)


def confirm(site: Site, climb: Climb) -> tuple[Climb, str]:
    """Rung 1: look twice, so that a single slow answer costs nobody a service.

    Also where the ladder ends before it begins: nothing is broken, a reboot is needed, or the
    attempts are used up.
    """
    history = record.load(site.paths)
    first = _look(site, history, PROBE_SECONDS)
    if first.course is Course.NONE:
        return replace(climb, verdict=Verdict.DRIVER_OK, reason=first.reason), first.reason
    # With time for a cold driver: slow is not broken.
    second = _look(site, history, None)
    if second.course is Course.NONE:
        reason = f"once: {first.reason}; then: {second.reason}"
        return replace(climb, verdict=Verdict.DRIVER_OK, reason=reason), reason
    if second.course is Course.REBOOT:
        return climb.give_up(second.reason, needs_reboot=True), second.reason
    now = site.host.clock.time()
    if not site.ignore_limit and history.recent(now) >= record.MAX_ATTEMPTS:
        reason = (
            f"{record.MAX_ATTEMPTS} attempts within {record.WINDOW_SECONDS / 60:.0f} minutes "
            f"did not help: {second.reason}"
        )
        return climb.give_up(reason), reason
    # Counted before anything is touched: a climb that is cut off was an attempt too.
    record.save(site.paths, history.begin(climb.attempt, now))
    return (
        replace(climb, reason=second.reason, gpus=second.gpus, addresses=second.addresses),
        f"twice: {second.reason}",
    )


def _look(site: Site, history: record.RecoveryRecord, seconds: float | None) -> Diagnosis:
    view = look(site.host, deadline_seconds=seconds)
    # All open files of a busy machine take a while to go through.
    holding = holders(site.host) if view.fault else []
    return diagnose(view, holding, recovered_at=uptime_of_last_recovery(site.host, history))


def drain(site: Site, climb: Climb) -> tuple[Climb, str]:
    """Rung 2: take the host's replicas out of rotation and let requests end."""
    services = site.replicas.in_rotation()
    history = record.load(site.paths)
    # Written down before anything is drained: a climb that is cut off must not lose them.
    known = tuple(sorted({*history.drained, *services}))
    record.save(site.paths, replace(history, drained=known))
    left = site.replicas.drain(services, f"host fault: {climb.reason}", seconds=DRAIN_SECONDS - 1)
    names = ", ".join(known) or "no replica"
    return climb, f"out of rotation: {names}" + (f"; {left} requests cut off" if left else "")


def stop_clients(site: Site, climb: Climb) -> tuple[Climb, str]:
    """Rung 3: end what is ours and holds the GPU."""
    history = record.load(site.paths)
    remaining = site.replicas.stop(history.drained, f"host fault: {climb.reason}")
    if remaining:
        reason = f"replicas that can't be ended: {', '.join(remaining)}"
        return climb.give_up(reason, needs_reboot=True), reason
    active = active_units(site)
    record.save(
        site.paths,
        replace(history, stopped_units=tuple(sorted({*history.stopped_units, *active}))),
    )
    if active:
        ran = site.host.run(["systemctl", "stop", *active], deadline_seconds=UNITS_SECONDS)
        if not ran.ok:
            reason = f"units that can't be stopped: {ran.why}"
            return climb.give_up(reason), reason
    names = ", ".join([*history.drained, *active])
    return climb, f"stopped: {names or 'nothing ran'}"


def require_unheld(site: Site, climb: Climb) -> tuple[Climb, str]:
    """Rung 4: no process but ours may hold the device; we end nobody else's work."""
    deadline = site.host.clock.monotonic() + HOLDER_SECONDS - 1
    while True:
        found = [holder for holder in holders(site.host) if not holder.ours]
        if not found or site.host.clock.monotonic() >= deadline:
            break
        site.host.clock.sleep(0.2)
    hung = [holder for holder in found if holder.hangs]
    if hung:
        reason = f"a reboot is needed: {_names(hung)} in the kernel (state D)"
        return climb.give_up(reason, needs_reboot=True), reason
    if found:
        reason = f"held by what is not ours to end: {_names(found)}"
        return climb.give_up(reason), reason
    counts = ", ".join(f"{name} {count}" for name, count in refcounts(site.host).items())
    return climb, f"nobody holds /dev/nvidia*; module users: {counts or 'no module loaded'}"


def active_units(site: Site) -> list[str]:
    """Those of `UNITS` that run; none on a machine without systemd."""
    ran = site.host.run(["systemctl", "is-active", *UNITS])
    states = ran.stdout.split()
    if len(states) != len(UNITS):
        return []
    return [unit for unit, state in zip(UNITS, states, strict=True) if state == "active"]


def _names(found: list[Holder]) -> str:
    return ", ".join(f"process {h.pid} ({h.name}) holds {h.device}" for h in found)


def uptime_of_last_recovery(host: Host, history: record.RecoveryRecord) -> float:
    """Seconds since boot at which a recovery last succeeded; 0 if none did since boot."""
    ended = [a.ended for a in history.attempts if a.recovered and a.ended is not None]
    if not ended:
        return 0.0
    return max(0.0, uptime(host) - (host.clock.time() - ended[-1]))
