"""Which replicas are recovered, which are left alone, and when it stops."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import pairwise

import pytest

from lifecycle.fleet.faults import RULE, Fault
from lifecycle.fleet.observe import ReplicaObservation
from lifecycle.fleet.probe import HostedModel, Probe
from lifecycle.fleet.proxy.base import ProxyServer
from lifecycle.fleet.recovery import RecoveryDecision, Sight, Watch, decide, watches_from_json

READY = HostedModel("d" * 64, "v1", "ready", engine_pid=11)
IN_ROTATION = ProxyServer("r1", "127.0.0.1", 8001, "ready", up=True, weight=100, sessions=0)
HEALTHY = ReplicaObservation(
    "r1",
    "127.0.0.1",
    8001,
    process=True,
    pid=10,
    probe=Probe(live=True, ready=True, progressing=True, models={"m": READY}),
    proxy=IN_ROTATION,
)
GONE = replace(HEALTHY, process=False, pid=None, probe=Probe(error="refused"))
SILENT = replace(HEALTHY, probe=Probe(reason="does not answer", error="no answer within 2 s"))
STUCK = replace(HEALTHY, probe=replace(HEALTHY.probe, ready=False, progressing=False))
DRAINING = replace(HEALTHY, probe=replace(HEALTHY.probe, ready=False, draining=True))
LOADING = replace(
    HEALTHY,
    probe=Probe(live=True, reason="m is loading", models={"m": replace(READY, state="loading")}),
)
UNREADY = replace(
    HEALTHY,
    probe=Probe(
        live=True, reason="m is restarting", models={"m": replace(READY, state="restarting")}
    ),
)
ASIDE = replace(HEALTHY, proxy=replace(IN_ROTATION, rotation="drain"))


def sight(seen: ReplicaObservation, **fields: object) -> Sight:
    return Sight("r1", seen=seen, **{"ran_before": True, **fields})  # type: ignore[arg-type]


class Ticks:
    """Decisions at one tick every 5 s, the memory passed through JSON as a cursor is."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.watches: dict[str, Watch] = {}
        self.last: RecoveryDecision | None = None

    def tick(self, one: Sight, busy: Sequence[str] = (), seconds: float = 5.0) -> RecoveryDecision:
        self.now += seconds
        self.last = decide([one], self.watches, busy, self.now)
        text = json.dumps({name: asdict(w) for name, w in self.last.watches.items()})
        self.watches = watches_from_json(json.loads(text))
        assert self.watches == self.last.watches
        return self.last

    def until_asked(self, one: Sight, limit: float = 2000.0) -> float:
        """Seconds of ticks until a recovery is asked for."""
        began = self.now
        while self.now - began < limit:
            if self.tick(one).recoveries:
                return self.now - began
        raise AssertionError(f"never: {self.last}")


def test_a_dead_process_is_recovered_at_the_first_tick() -> None:
    ticks = Ticks()
    assert not ticks.tick(sight(HEALTHY)).recoveries
    (recovery,) = ticks.tick(sight(GONE)).recoveries
    assert recovery.fault is Fault.GONE
    assert recovery.run_key == "recover:r1:1010:1"


@pytest.mark.parametrize(
    ("seen", "fields"),
    [
        (GONE, {"ended_on_purpose": True}),
        (GONE, {"desired": "stopped"}),
        (GONE, {"desired": "drained"}),
        (SILENT, {"desired": "drained"}),
        (STUCK, {"desired": "stopped"}),
        (DRAINING, {}),
        (LOADING, {}),
        (replace(HEALTHY, process=None), {}),
    ],
    ids=[
        "SIGTERM",
        "declared stopped",
        "declared drained",
        "drained and silent",
        "on its way out",
        "drains",
        "loads",
        "supervisor silent",
    ],
)
def test_what_is_meant_to_be_so_is_left_alone(
    seen: ReplicaObservation, fields: dict[str, object]
) -> None:
    ticks = Ticks()
    ticks.tick(sight(HEALTHY))
    for _ in range(100):
        assert not ticks.tick(sight(seen, **fields)).recoveries


def test_a_drain_that_ended_in_sigkill_was_a_planned_stop_all_the_same() -> None:
    ticks = Ticks()
    for seen in (HEALTHY, DRAINING, DRAINING, GONE, GONE, GONE):
        decision = ticks.tick(sight(seen))
        assert not decision.recoveries
    assert "on purpose" in decision.notes["r1"]
    # Started again by somebody, it is guarded again.
    ticks.tick(sight(replace(HEALTHY, pid=99)))
    assert ticks.tick(sight(GONE)).recoveries


@pytest.mark.parametrize(
    ("seen", "fault", "least"),
    [
        (STUCK, Fault.STUCK, 0),
        (SILENT, Fault.HUNG, 15),
        (ASIDE, Fault.ASIDE, 30),
        (UNREADY, Fault.NOT_READY, 300),
    ],
)
def test_a_fault_must_last_as_long_as_it_is_doubtful(
    seen: ReplicaObservation, fault: Fault, least: float
) -> None:
    ticks = Ticks()
    ticks.tick(sight(HEALTHY))
    waited = ticks.until_asked(sight(seen))
    assert least <= waited - 5 <= least + 5
    assert ticks.last is not None and ticks.last.recoveries[0].fault is fault


def test_one_slow_answer_is_nothing() -> None:
    ticks = Ticks()
    for seen in (HEALTHY, SILENT, SILENT, HEALTHY, SILENT, SILENT, HEALTHY):
        assert not ticks.tick(sight(seen)).recoveries


def test_a_process_that_starts_has_time_to_answer_and_not_for_ever() -> None:
    ticks = Ticks()
    waited = ticks.until_asked(sight(SILENT))
    assert waited >= RULE.import_seconds


def test_a_load_that_never_ends_is_no_excuse() -> None:
    ticks = Ticks()
    assert RULE.loading_seconds <= ticks.until_asked(sight(LOADING)) <= 1300


def test_a_declared_replica_that_nobody_starts_is_started() -> None:
    ticks = Ticks()
    waited = ticks.until_asked(sight(GONE, ran_before=False))
    assert waited >= RULE.patience[Fault.NEVER_STARTED]


def test_nothing_is_asked_for_while_a_run_is_under_way() -> None:
    ticks = Ticks()
    ticks.tick(sight(HEALTHY))
    for _ in range(50):
        decision = ticks.tick(sight(GONE), busy=["r1"])
        assert not decision.recoveries
        assert "under way" in decision.notes["r1"]
    assert ticks.tick(sight(GONE)).recoveries


def test_a_stop_in_the_middle_of_a_recovery_is_no_planned_stop() -> None:
    ticks = Ticks()
    ticks.tick(sight(HEALTHY))
    ticks.until_asked(sight(UNREADY))
    # The run has stopped it in an orderly way and was killed before the start.
    assert ticks.until_asked(sight(GONE, ended_on_purpose=True)) <= 30


def test_attempts_are_paused_counted_and_end_in_one_alert() -> None:
    ticks = Ticks()
    ticks.tick(sight(HEALTHY))
    asked: list[tuple[float, str]] = []
    alerts: list[str] = []
    for _ in range(1000):
        decision = ticks.tick(sight(GONE))
        asked += [(ticks.now, recovery.run_key) for recovery in decision.recoveries]
        alerts += decision.given_up.values()
    assert len(asked) == RULE.max_attempts
    assert len({key for _, key in asked}) == len(asked), "Dagster never forgets a run key"
    pauses = [b[0] - a[0] for a, b in pairwise(asked)]
    assert pauses == sorted(pauses) and pauses[0] >= RULE.first_pause
    assert len(alerts) == 1 and "a person is needed" in alerts[0]
    # A person has repaired it: it is guarded again.
    ticks.tick(sight(replace(HEALTHY, pid=77)))
    assert ticks.tick(sight(GONE)).recoveries


def test_a_replica_that_dies_over_and_over_is_given_up_too() -> None:
    ticks = Ticks()
    asked = 0
    for round in range(20):
        ticks.tick(sight(replace(HEALTHY, pid=100 + round)), seconds=10)
        asked += len(ticks.tick(sight(GONE)).recoveries)
    assert asked == RULE.max_in_window


def test_the_proxy_is_recovered_as_well() -> None:
    ticks = Ticks()
    dead = Sight("proxy", proxy_error="no such file")
    assert not ticks.tick(dead).recoveries
    (recovery,) = ticks.tick(dead).recoveries
    assert (recovery.service, recovery.fault) == ("proxy", Fault.PROXY)


def test_a_cursor_that_cannot_be_read_is_forgotten() -> None:
    assert watches_from_json({"r1": {"pid": 1}, "r2": 5, "r3": {"nonsense": 1, "asked": []}}) == {}
