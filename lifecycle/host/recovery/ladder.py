"""The ladder: each rung with its precondition, its deadline, and what runs it.

A rung is skipped unless its precondition holds *now*, so that a climb that was cut off, or a
tick that came twice, does nothing a second time.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace

from lifecycle.host.commands import AbandonedChildrenError
from lifecycle.host.recovery import record, rungs_after, rungs_before, rungs_driver
from lifecycle.host.recovery.climb import Climb, Outcome, Site, Verdict
from registry.errors import IronworksError

Action = Callable[[Site, Climb], tuple[Climb, str]]


@dataclass(frozen=True)
class Rung:
    """One step.

    Attributes:
        name: of its op.
        action: does it; returns the climb as it stands and what was seen.
        deadline: seconds that it may take.
        skip: why it is not needed, "" if it is; decides from the climb alone.
    """

    name: str
    action: Action
    deadline: Callable[[Site], float]
    skip: Callable[[Climb], str]


def _broken(climb: Climb) -> str:
    """Only while the fault is confirmed and not cured."""
    if climb.verdict is Verdict.CLIMBING:
        return ""
    return "it is over" if climb.verdict.over else "the driver answers"


def _not_healthy(climb: Climb) -> str:
    """Also when given up: a host that can't be helped must not get requests."""
    return "" if climb.verdict in (Verdict.CLIMBING, Verdict.GIVEN_UP) else "the driver answers"


def _resettable(climb: Climb) -> str:
    return _broken(climb) or ("" if climb.gpus else "NVML names no GPU that could be reset")


def _driver_ok(climb: Climb) -> str:
    return "" if climb.verdict is Verdict.DRIVER_OK else "the driver does not answer"


def _seconds(value: float) -> Callable[[Site], float]:
    return lambda site: value


RUNGS = (
    Rung(
        "confirm_fault",
        rungs_before.confirm,
        _seconds(rungs_before.CONFIRM_SECONDS),
        lambda climb: "",
    ),
    Rung("drain_replicas", rungs_before.drain, _seconds(rungs_before.DRAIN_SECONDS), _not_healthy),
    Rung("stop_clients", rungs_before.stop_clients, _seconds(rungs_before.STOP_SECONDS), _broken),
    Rung(
        "require_unheld",
        rungs_before.require_unheld,
        _seconds(rungs_before.HOLDER_SECONDS),
        _broken,
    ),
    Rung("reset_gpu", rungs_driver.reset, _seconds(rungs_driver.RESET_SECONDS), _resettable),
    Rung("reload_driver", rungs_driver.reload, _seconds(rungs_driver.RELOAD_SECONDS), _broken),
    Rung("reset_pci", rungs_driver.pci_reset, _seconds(rungs_driver.PCI_SECONDS), _broken),
    Rung(
        "start_daemons",
        rungs_after.start_daemons,
        _seconds(rungs_after.DAEMONS_SECONDS),
        lambda climb: "",
    ),
    Rung("verify_gpus", rungs_after.verify, rungs_after.verify_seconds, _driver_ok),
    Rung("start_replicas", rungs_after.start_replicas, lambda site: site.ready_seconds, _driver_ok),
)


def step(site: Site, rung: Rung, climb: Climb) -> Climb:
    """Take one rung, if it is needed; says what it did."""
    clock, deadline = site.host.clock, rung.deadline(site)
    why_not = rung.skip(climb)
    if rung.name == "reset_pci" and not why_not and not site.pci_reset:
        why_not = "opt-in, see the job's configuration"
    if why_not:
        return climb.with_outcome(Outcome(rung.name, "skipped", why_not, 0.0, deadline))
    started = clock.monotonic()
    site.say(f"{rung.name} (at most {deadline:.0f} s)")
    before = climb.verdict
    try:
        climb, evidence = rung.action(site, climb)
    except AbandonedChildrenError as error:
        climb, evidence = climb.give_up(str(error), needs_reboot=True), str(error)
    except Exception as error:
        # Whatever it is, a bug too: the ladder must reach its end, which writes the attempt
        # down and says so, and keeps the host out of rotation.
        known = isinstance(error, IronworksError)
        evidence = str(error) if known else "".join(traceback.format_exception(error))[-1500:]
        climb = replace(climb, verdict=Verdict.FAILED, reason=f"{rung.name}: {error}")
    failed = climb.verdict is not before and climb.verdict.over
    if rung.name in _CURES and climb.verdict is Verdict.CLIMBING:
        failed = True
    site.say(f"{rung.name}: {evidence}")
    return climb.with_outcome(
        Outcome(
            rung.name,
            "failed" if failed else "done",
            evidence,
            round(clock.monotonic() - started, 3),
            deadline,
        )
    )


_CURES = ("reset_gpu", "reload_driver", "reset_pci")


def end(site: Site, climb: Climb) -> Climb:
    """Write down how it ended; a climb that cured nothing has failed."""
    now = site.host.clock.time()
    if climb.verdict not in (Verdict.SERVING, Verdict.GIVEN_UP):
        climb = replace(climb, verdict=Verdict.FAILED)
    history = record.load(site.paths)
    used_up = climb.verdict is Verdict.FAILED and history.recent(now) >= record.MAX_ATTEMPTS
    if used_up:
        climb = climb.give_up(f"{history.recent(now)} attempts did not help: {climb.reason}")
    history = history.end(climb.attempt, now, recovered=climb.verdict is Verdict.SERVING)
    if climb.verdict is Verdict.GIVEN_UP:
        boot = (site.host.read("/proc/sys/kernel/random/boot_id") or "").strip()
        given_up = record.GivenUp(now, boot, climb.reason, climb.needs_reboot)
        history = replace(history, given_up=given_up)
    elif climb.verdict is Verdict.SERVING:
        history = replace(history, given_up=None, healthy_at=now)
        if climb.driver_at is not None:
            history = replace(
                history,
                driver_recovered_seconds=climb.driver_recovered_seconds,
                serving_again_seconds=climb.serving_again_seconds,
            )
    record.save(site.paths, history)
    return climb
