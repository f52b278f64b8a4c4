"""Which promoted versions must be brought to the replicas: pure decisions.

The registry's alias says what is wanted, each replica says what it serves. ``decide`` is
safe to ask at any time and twice: it asks for nothing while they agree, while a reload
is under way, or while the last attempt was a short time ago.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from lifecycle.models.partitions import VersionKey

MAX_ATTEMPTS = 4
"""Reloads tried for one move of an alias before a person is needed."""
FIRST_PAUSE_SECONDS = 30.0
"""Pause after the first failed attempt; doubled after each further one."""


@dataclass(frozen=True)
class Wanted:
    """A version that an alias names."""

    key: VersionKey
    digest: str
    revision: int
    """Of the alias: grows with every move."""


@dataclass(frozen=True)
class Hosted:
    """One model of a replica, as the replica tells it."""

    digest: str
    """Of the version that it serves, or tries to bring up."""
    state: str
    """``loading``, ``ready``, ``restarting`` or ``stopped``."""
    swapping: bool = False


@dataclass(frozen=True)
class ReplicaView:
    """What is known of the replica at one moment."""

    running: bool
    """Whether its process exists."""
    models: Mapping[str, Hosted] = field(default_factory=dict)
    """By name; empty while it starts or doesn't answer."""

    def serves(self, model: str, digest: str) -> bool:
        """Whether requests for ``model`` are answered by the version ``digest``."""
        hosted = self.models.get(model)
        return hosted is not None and hosted.state == "ready" and hosted.digest == digest


@dataclass(frozen=True)
class Attempts:
    """How often a reload was asked for since replica and alias last agreed."""

    revision: int
    count: int
    last: float
    """Unix time in seconds of the latest."""
    serial: int
    """Requests ever made for this model; makes run keys unique, since Dagster never forgets one."""


@dataclass(frozen=True)
class Reload:
    """One reload to ask for."""

    wanted: Wanted
    run_key: str


@dataclass(frozen=True)
class Decision:
    """What the sensor does with one look at aliases and replicas."""

    reloads: tuple[Reload, ...]
    notes: tuple[str, ...]
    """Why nothing is asked for, by model."""
    attempts: Mapping[str, Attempts]
    """By model: the next cursor."""


def decide(
    wanted: Collection[Wanted],
    views: Mapping[str, Collection[ReplicaView]],
    in_flight: Collection[str],
    attempts: Mapping[str, Attempts],
    now: float,
) -> Decision:
    """Choose the reloads to ask for.

    Args:
        wanted: one version for each model whose alias is set.
        views: by model: the replicas that should serve it, as they are.
        in_flight: models for which a reload is queued or running.
        attempts: the cursor of the last decision.
        now: Unix time in seconds.
    """
    reloads: list[Reload] = []
    notes: list[str] = []
    following: dict[str, Attempts] = {}
    for want in wanted:
        model = want.key.model
        past = attempts.get(model, Attempts(want.revision, 0, 0.0, 0))
        if past.revision != want.revision:
            past = Attempts(want.revision, 0, 0.0, past.serial)
        view = _furthest_behind(want, views.get(model, ()))
        if view.serves(model, want.digest):
            following[model] = Attempts(want.revision, 0, 0.0, past.serial)
            notes.append(f"{want.key}: served")
            continue
        reason = _reason_to_wait(want, view, in_flight, past, now)
        if reason:
            following[model] = past
            notes.append(f"{want.key}: {reason}")
            continue
        serial = past.serial + 1
        following[model] = Attempts(want.revision, past.count + 1, now, serial)
        key = f"reload:{want.key}:{want.digest[:12]}:alias-{want.revision}:{serial}"
        reloads.append(Reload(want, key))
    return Decision(tuple(reloads), tuple(notes), following)


def _furthest_behind(want: Wanted, views: Collection[ReplicaView]) -> ReplicaView:
    """The view that decides: of those that don't serve the version, a busy one first.

    A replica without a process while others run is not looked at: it loads what the alias
    names when it is brought back, which is not a reload's work.
    """
    running = [view for view in views if view.running]
    if not running:
        return ReplicaView(running=False)
    behind = [view for view in running if not view.serves(want.key.model, want.digest)]
    busy = [view for view in behind if _replica_is_busy(want, view)]
    return [*busy, *behind, *running][0]


def _reason_to_wait(
    want: Wanted, view: ReplicaView, in_flight: Collection[str], past: Attempts, now: float
) -> str:
    if want.key.model in in_flight:
        return "a reload is under way"
    if view.running:
        reason = _replica_is_busy(want, view)
        if reason:
            return reason
    if past.count >= MAX_ATTEMPTS:
        return (
            f"{past.count} reloads did not bring it up; look at the failed runs, "
            "then materialise deployed_version by hand or move the alias"
        )
    if past.count:
        pause = FIRST_PAUSE_SECONDS * 2.0 ** (past.count - 1)
        left = past.last + pause - now
        if left > 0:
            return f"the last reload did not bring it up; next attempt in {left:.0f} s"
    return ""


def _replica_is_busy(want: Wanted, view: ReplicaView) -> str:
    if not view.models:
        return "the replica is starting, or does not answer"
    hosted = view.models.get(want.key.model)
    if hosted is None:
        return f"the replica serves {', '.join(sorted(view.models))} only; start one for this model"
    if hosted.swapping or hosted.state == "loading":
        return "the replica is loading a version"
    if hosted.state == "stopped":
        return "the replica is shutting down"
    if hosted.digest == want.digest:
        return "the replica is bringing its engine back"
    return ""


def attempts_from_json(value: Mapping[str, Any]) -> dict[str, Attempts]:
    """Read a cursor; what can't be read is forgotten rather than fatal."""
    result: dict[str, Attempts] = {}
    for model, fields in value.items():
        try:
            result[model] = Attempts(**fields)
        except TypeError:
            continue
    return result
