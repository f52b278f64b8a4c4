"""Loads: only what was verified is ready, every change is an event, and as-of never guesses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from registry.errors import ConflictError, InputError, IntegrityError, NotFoundError
from registry.loads import LoadIdentity
from registry.queries import LEASE_US, Served
from registry.store import Registry, Version
from tests.support.plain_checkpoint import SHARDS

Add = Callable[[str], Version]


def digests(version: Version) -> dict[str, str]:
    return {entry.path: entry.sha256 for entry in version.manifest.files}


def make_ready(registry: Registry, version: Version, who: LoadIdentity) -> int:
    ticket = registry.loads.started(version.digest, who)
    registry.loads.verified(ticket.load_id, files=digests(version), seconds={"read": 0.25})
    registry.loads.ready(ticket.load_id, seconds={"warm": 0.5})
    return ticket.load_id


def as_of(registry: Registry, at_us: int) -> list[Served]:
    return list(registry.queries.as_of("replica-8000", at_us=at_us).rows)


def test_a_whole_life_is_on_record(registry: Registry, add: Add, identity: LoadIdentity) -> None:
    version = add("tiny@v1")
    load = make_ready(registry, version, identity)
    registry.loads.retired(load)
    registry.loads.unloaded(load, reason="swapped")
    events = list(registry.audit.events())[1:]
    assert [event.kind for event in events] == [
        "load.started",
        "load.verified",
        "load.ready",
        "load.retired",
        "load.unloaded",
    ]
    assert {event.subject for event in events} == {version.digest}
    assert {event.actor for event in events} == {"replica-8000@host-a"}
    assert events[0].body["git_commit"] == "c0ffee" and events[0].body["version"] == "tiny@v1"
    assert events[1].body["files"] == digests(version)
    assert events[1].body["microseconds"] == {"read": 250_000}
    record = registry.loads.get(load)
    assert (record.state, record.end_reason) == ("unloaded", "swapped")
    assert record.identity == identity


def test_a_host_is_shown_the_log_head_when_it_loads(
    registry: Registry, add: Add, identity: LoadIdentity
) -> None:
    version = add("tiny@v1")
    ticket = registry.loads.started(version.digest, identity)
    assert ticket.log_head == registry.audit.head()


def test_only_registered_versions_load(registry: Registry, identity: LoadIdentity) -> None:
    with pytest.raises(NotFoundError):
        registry.loads.started("0" * 64, identity)
    assert registry.audit.head().seq == 0


def test_bytes_that_are_not_the_manifests_are_never_called_verified(
    registry: Registry, add: Add, identity: LoadIdentity
) -> None:
    version = add("tiny@v1")
    load = registry.loads.started(version.digest, identity).load_id
    good = digests(version)
    without = {path: digest for path, digest in good.items() if path != SHARDS[1]}
    for wrong, where in (
        ({**good, SHARDS[0]: "0" * 64}, SHARDS[0]),
        ({**good, "extra.json": "0" * 64}, "extra.json"),
        (without, SHARDS[1]),
    ):
        with pytest.raises(IntegrityError) as caught:
            registry.loads.verified(load, files=wrong, seconds={})
        assert caught.value.where == where
    assert registry.loads.get(load).state == "started"
    with pytest.raises(ConflictError, match="started can't become ready"):
        registry.loads.ready(load, seconds={})
    registry.loads.failed(load, phase="verify", reason="digest mismatch\non shard 1")
    assert registry.loads.get(load).end_reason == "digest mismatch on shard 1"


def test_an_end_told_twice_is_recorded_once(
    registry: Registry, add: Add, identity: LoadIdentity
) -> None:
    load = make_ready(registry, add("tiny@v1"), identity)
    registry.loads.failed(load, phase="serving", reason="x" * 10_000)
    head = registry.audit.head()
    assert registry.loads.failed(load, phase="serving", reason="again") == head
    with pytest.raises(ConflictError, match="failed can't become unloaded"):
        registry.loads.unloaded(load, reason="late")
    assert registry.audit.head() == head


def test_a_heartbeat_is_no_event_and_never_raises_the_dead(
    registry: Registry, add: Add, identity: LoadIdentity
) -> None:
    load = make_ready(registry, add("tiny@v1"), identity)
    head, before = registry.audit.head(), registry.loads.get(load)
    registry.loads.heartbeat(load)
    alive = registry.loads.get(load)
    assert alive.heartbeat_us > before.heartbeat_us and registry.audit.head() == head
    registry.loads.unloaded(load, reason="stop")
    ended = registry.loads.get(load)
    registry.loads.heartbeat(load)
    assert registry.loads.get(load) == ended


def test_as_of_before_during_and_after_a_swap(
    registry: Registry, add: Add, identity: LoadIdentity
) -> None:
    one, two = add("tiny@v1"), add("tiny@v2")
    old = make_ready(registry, one, identity)
    new = make_ready(registry, two, identity)
    registry.loads.retired(old)
    registry.loads.heartbeat(new)
    first, second = registry.loads.get(old), registry.loads.get(new)
    assert first.ready_us and second.ready_us and first.retired_us

    assert as_of(registry, first.ready_us - 1) == []
    (row,) = as_of(registry, second.ready_us - 1)
    assert (row.version, row.certainty, row.until_us) == ("tiny@v1", "exact", first.retired_us)
    during = as_of(registry, second.ready_us)
    assert [(r.version, r.certainty) for r in during] == [
        ("tiny@v1", "exact"),
        ("tiny@v2", "exact"),
    ]
    (row,) = as_of(registry, first.retired_us)
    assert (row.version, row.digest, row.certainty) == ("tiny@v2", two.digest, "exact")


def test_certainty_fades_when_the_lease_stops(
    registry: Registry, add: Add, identity: LoadIdentity
) -> None:
    load = make_ready(registry, add("tiny@v1"), identity)
    registry.loads.heartbeat(load)
    last = registry.loads.get(load).heartbeat_us
    assert [row.certainty for row in as_of(registry, last)] == ["exact"]
    for at_us, certainty in (
        (last + 1, "inferred"),
        (last + LEASE_US, "inferred"),
        (last + LEASE_US + 1, "unknown"),
    ):
        (row,) = as_of(registry, at_us)
        assert (row.certainty, row.heartbeat_us) == (certainty, last)
        assert "no end was recorded" in row.note


def test_a_restarted_service_shows_that_the_killed_one_is_gone(
    registry: Registry, add: Add, identity: LoadIdentity
) -> None:
    one, two = add("tiny@v1"), add("tiny@v2")
    killed = make_ready(registry, one, identity)
    again = replace(identity, pid=201, api_pid=200, process_start_us=2)
    elsewhere = replace(again, host="host-b", service="replica-8001")
    make_ready(registry, two, elsewhere)
    dead_since = registry.loads.get(killed).heartbeat_us
    (row,) = as_of(registry, dead_since + LEASE_US * 9)
    assert (row.version, row.certainty) == ("tiny@v1", "unknown")

    load = make_ready(registry, two, again)
    registry.loads.heartbeat(load)
    (row,) = as_of(registry, registry.loads.get(load).heartbeat_us)
    assert (row.version, row.certainty) == ("tiny@v2", "exact")


def test_as_of_selects_by_service_and_host(
    registry: Registry, add: Add, identity: LoadIdentity
) -> None:
    version = add("tiny@v1")
    make_ready(registry, version, identity)
    make_ready(registry, version, replace(identity, service="replica-8001", host="host-b"))
    query = registry.queries.as_of
    assert len(query().rows) == 2
    assert [row.host for row in query(host="host-b").rows] == ["host-b"]
    assert query(service="replica-8000", host="host-b").rows == ()
    assert query().head == registry.audit.head()


def test_trace_and_timeline(registry: Registry, add: Add, identity: LoadIdentity) -> None:
    one, two = add("tiny@v1"), add("other@v1")
    for version in (one, two):
        for gate in registry.policy.rule("candidate").gates:
            registry.record_gate(
                version.name, gate=gate, outcome="pass", numbers={}, actor="a", run_id="r"
            )
        registry.promote(version.name, alias="candidate", actor="a", reason="try")
    load = make_ready(registry, one, identity)
    make_ready(registry, two, replace(identity, model="other", service="b", host="host-b"))
    registry.loads.failed(load, phase="serving", reason="killed")

    trace = registry.queries.trace("tiny@v1")
    assert [event.kind for event in trace.events] == [
        "version.registered",
        "gate.recorded",
        "gate.recorded",
        "alias.moved",
        "load.started",
        "load.verified",
        "load.ready",
        "load.failed",
    ]
    assert [record.state for record in trace.loads] == ["failed"]
    assert len(trace.gates) == 2

    on_a = registry.queries.timeline(host="host-a").events
    assert [event.kind for event in on_a] == [
        "alias.moved",
        "load.started",
        "load.verified",
        "load.ready",
        "load.failed",
    ]
    assert on_a == registry.queries.timeline(service="replica-8000").events
    assert len(registry.queries.timeline().events) == 2 + 4 + 3


def test_who_loads_must_be_something_the_log_can_hold(
    registry: Registry, add: Add, identity: LoadIdentity
) -> None:
    version = add("tiny@v1")
    with pytest.raises(InputError):
        registry.loads.started(version.digest, replace(identity, service="a\nb"))
    with pytest.raises(NotFoundError):
        registry.loads.ready(7, seconds={})


def test_the_latest_load_tells_an_orderly_stop_from_a_death(
    registry: Registry, add: Add, identity: LoadIdentity
) -> None:
    version = add("tiny@v1")
    assert registry.loads.latest("replica-8000") is None
    stopped = make_ready(registry, version, identity)
    registry.loads.unloaded(stopped, reason="the replica stopped")
    other = replace(identity, service="replica-8001")
    make_ready(registry, version, other)
    last = registry.loads.latest("replica-8000")
    assert last is not None and (last.load_id, last.state) == (stopped, "unloaded")
    killed = make_ready(registry, version, identity)
    last = registry.loads.latest("replica-8000")
    assert last is not None and (last.load_id, last.state) == (killed, "ready")
