"""How many replicas there should be: one pure decision, in production and in the simulator.

``desired = ceil(in_system / target_per_replica)``: the number of requests that run or wait
is the load, whatever the GPU reports (its utilisation only says that some kernel ran; ledger
L43, L44). KV use, time to first token and the GPU's thresholds may ask for one more. Growth
must be wanted for a whole up-window; shrinking for a whole, much longer, down-window, with
headroom at the smaller size, so that noise in the load never turns a change round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from lifecycle.fleet.scale_rule import ScaleRule


@dataclass(frozen=True)
class FleetLoad:
    """The fleet at one moment; None is "not known", which never asks for a change.

    Attributes:
        replicas: how many should run.
        ready: how many of them take requests.
        running, waiting: requests over all replicas.
        kv_usage: of the fullest replica, 0 to 1.
        ttft_p95_seconds: since the last look.
        gpu_util, gpu_memory: mean over the devices, 0 to 1; None without a GPU.
        healthy_devices: GPUs that work; None where replicas run on CPUs.
        unknown: why the load can't be told ("" if it can): nothing is changed then.
    """

    replicas: int
    ready: int
    running: int
    waiting: int
    kv_usage: float | None = None
    ttft_p95_seconds: float | None = None
    gpu_util: float | None = None
    gpu_memory: float | None = None
    healthy_devices: int | None = None
    unknown: str = ""

    @property
    def in_system(self) -> int:
        """Requests that run or wait."""
        return self.running + self.waiting


@dataclass(frozen=True)
class Wish:
    """A wish to change that has lasted for some looks."""

    since: float
    replicas: int
    """The smallest change that was wished for all the time."""


@dataclass(frozen=True)
class ScaleState:
    """What the decision remembers from one look to the next."""

    more: Wish | None = None
    fewer: Wish | None = None
    pressure_since: Mapping[str, float] = field(default_factory=dict)
    """By signal: since when it is over its bound."""
    recent: tuple[tuple[float, int], ...] = ()
    """Time and requests in the system at the looks of the last down-window."""
    changed: float | None = None
    """When the last change was decided."""
    serial: int = 0
    """Changes decided so far; makes run keys unique."""


@dataclass(frozen=True)
class ScaleDecision:
    """What one look led to.

    Attributes:
        target: how many replicas there should be.
        reason: why, also why nothing is done.
        inputs: everything that was decided from.
        state: for the next look.
        changes: whether the target differs from what is declared.
    """

    target: int
    reason: str
    inputs: Mapping[str, Any]
    state: ScaleState
    changes: bool = False


def decide(load: FleetLoad, state: ScaleState, now: float, rule: ScaleRule) -> ScaleDecision:
    """Choose the number of replicas.

    Args:
        load: the fleet as seen.
        state: of the last decision.
        now: seconds, any origin that does not change.
        rule: bounds and constants.
    """
    # A wish that nobody could confirm has not lasted.
    following = replace(state, more=None, fewer=None, pressure_since={})
    if load.replicas == 0:
        target, reason = 0, "no replica is declared"
    elif load.unknown:
        target, reason = load.replicas, f"the load is not known: {load.unknown}"
    elif load.replicas < rule.min_replicas:
        target, reason = rule.min_replicas, f"fewer than the minimum of {rule.min_replicas}"
    elif load.replicas > rule.max_replicas:
        target, reason = rule.max_replicas, f"more than the maximum of {rule.max_replicas}"
    else:
        pressure = _pressure(load, state, now, rule)
        following = replace(
            state,
            pressure_since=pressure,
            more=_lasting(state.more, _more(load, pressure, now, rule), now, min),
            fewer=_lasting(state.fewer, _fewer(load, pressure, rule), now, max),
            recent=_recent(state, load, now, rule),
        )
        target, reason = _choose(load, following, now, rule)
    changes = target != load.replicas
    if changes:
        following = ScaleState(recent=following.recent, changed=now, serial=state.serial + 1)
    inputs = asdict(load) | {"in_system": load.in_system, "formula": formula(load, rule)}
    return ScaleDecision(target, reason, inputs, following, changes)


def blind(load: FleetLoad, why: str) -> FleetLoad:
    """The same load, not to be decided from."""
    return replace(load, unknown=load.unknown or why)


def formula(load: FleetLoad, rule: ScaleRule) -> int:
    """``ceil(in_system / target_per_replica)``, at least one; the present number if near it."""
    wanted = load.in_system / rule.target_per_replica
    if load.replicas and abs(wanted / load.replicas - 1) <= rule.tolerance:
        return load.replicas
    return max(1, math.ceil(wanted))


def _choose(load: FleetLoad, state: ScaleState, now: float, rule: ScaleRule) -> tuple[int, str]:
    if state.more is not None:
        return _grow(load, state.more, state, now, rule)
    if state.fewer is not None:
        return _shrink(load, state.fewer, state, now, rule)
    return load.replicas, f"{load.in_system} in the system suit {load.replicas} replicas"


def _grow(
    load: FleetLoad, wish: Wish, state: ScaleState, now: float, rule: ScaleRule
) -> tuple[int, str]:
    over = sorted(state.pressure_since)
    why = f"{load.in_system} in the system" + (f", {' and '.join(over)} high" if over else "")
    capacity = rule.max_replicas
    if load.healthy_devices is not None:
        capacity = min(capacity, load.healthy_devices // rule.devices_per_replica)
    step = load.replicas + max(rule.step_up, load.replicas)
    target = min(wish.replicas, step, capacity)
    if target <= load.replicas:
        bound = (
            f"the maximum is {rule.max_replicas}"
            if capacity == rule.max_replicas
            else f"{load.healthy_devices} healthy devices carry no more"
        )
        return load.replicas, f"{why}: {wish.replicas} replicas wanted, but {bound}"
    wait = wish.since + rule.up_window_seconds - now
    if wait > 0:
        return load.replicas, f"{why}: {target} replicas if that lasts another {wait:.0f} s"
    rest = 0.0 if state.changed is None else state.changed + rule.up_cooldown_seconds - now
    if rest > 0:
        return load.replicas, f"{why}: {target} replicas after the cool-down, in {rest:.0f} s"
    return target, why


def _shrink(
    load: FleetLoad, wish: Wish, state: ScaleState, now: float, rule: ScaleRule
) -> tuple[int, str]:
    least = math.ceil(load.replicas * (1 - rule.step_down_share))
    target = max(wish.replicas, least, rule.min_replicas)
    why = f"{load.in_system} in the system"
    if target >= load.replicas:
        return load.replicas, f"{why}: the minimum is {rule.min_replicas}"
    wait = wish.since + rule.down_window_seconds - now
    if wait > 0:
        return load.replicas, f"{why}: {target} replicas if that lasts another {wait:.0f} s"
    rest = 0.0 if state.changed is None else state.changed + rule.down_cooldown_seconds - now
    if rest > 0:
        return load.replicas, f"{why}: {target} replicas after the cool-down, in {rest:.0f} s"
    if _rises(state.recent, rule):
        return load.replicas, f"{why}: {target} replicas would do now, but the load is rising"
    return target, f"{why}, few for {now - wish.since:.0f} s"


def _more(
    load: FleetLoad, pressure: Mapping[str, float], now: float, rule: ScaleRule
) -> int | None:
    """The larger number that is wished for, None if none is."""
    wanted = formula(load, rule)
    pressed = any(now - since >= rule.up_window_seconds for since in pressure.values())
    # While replicas start, more of them would be added for the same reason.
    if pressed and load.ready >= load.replicas:
        wanted = max(wanted, load.replicas + 1)
    return wanted if wanted > load.replicas else None


def _fewer(load: FleetLoad, pressure: Mapping[str, float], rule: ScaleRule) -> int | None:
    """The smaller number that is wished for, None if none is."""
    busy = (load.gpu_util is not None and load.gpu_util >= rule.util_low) or (
        load.gpu_memory is not None and load.gpu_memory >= rule.memory_low
    )
    if busy or pressure or load.waiting or load.ready < load.replicas:
        return None
    roomy = rule.target_per_replica * (1 - rule.down_headroom)
    wanted = max(1, math.ceil(load.in_system / roomy))
    return wanted if wanted < load.replicas else None


def _recent(
    state: ScaleState, load: FleetLoad, now: float, rule: ScaleRule
) -> tuple[tuple[float, int], ...]:
    kept = [look for look in state.recent if now - look[0] <= rule.down_window_seconds]
    return (*kept, (now, load.in_system))


def _rises(recent: tuple[tuple[float, int], ...], rule: ScaleRule) -> bool:
    third = max(1, len(recent) // 3)
    first, last = (sum(n for _, n in part) for part in (recent[:third], recent[-third:]))
    return last > rule.rising * first


def _lasting(
    before: Wish | None, replicas: int | None, now: float, least: Callable[[int, int], int]
) -> Wish | None:
    if replicas is None:
        return None
    if before is None:
        return Wish(now, replicas)
    return Wish(before.since, least(before.replicas, replicas))


def _pressure(load: FleetLoad, state: ScaleState, now: float, rule: ScaleRule) -> dict[str, float]:
    """Since when each signal has been over its bound, the signals that are."""

    def over(value: float | None, bound: float) -> bool:
        return value is not None and value > bound

    signals = {
        "KV use": over(load.kv_usage, rule.kv_high),
        "time to first token": over(load.ttft_p95_seconds, rule.ttft_goal_seconds),
        "GPU utilisation and memory": over(load.gpu_util, rule.util_high)
        and over(load.gpu_memory, rule.memory_high),
    }
    return {
        name: state.pressure_since.get(name, now) for name, is_over in signals.items() if is_over
    }


def state_from_json(value: Mapping[str, Any]) -> ScaleState:
    """Read back a state that ``asdict`` has made; what can't be read is a fresh one."""
    try:
        wishes = {
            name: Wish(**value[name]) if value.get(name) is not None else None
            for name in ("more", "fewer")
        }
        recent = tuple((float(at), int(number)) for at, number in value.get("recent", ()))
        return ScaleState(**{**value, **wishes, "recent": recent})
    except (TypeError, ValueError, AttributeError):
        return ScaleState()
