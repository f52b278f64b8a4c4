"""The desired state: what may be declared, and that the log tells every change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import update

from registry.errors import ConflictError, InputError
from registry.fleet import DesiredReplica
from registry.fsck import fsck
from registry.schema import desired_replica
from registry.store import Registry

ONE = DesiredReplica("replica-8001", "127.0.0.1", 8001, "demo")
TWO = DesiredReplica("replica-8002", "127.0.0.1", 8002, "demo", state="drained")


def changes(registry: Registry) -> list[dict[str, Any]]:
    return [e.body for e in registry.audit.events() if e.kind == "replica.desired"]


def test_each_change_is_one_event_and_no_change_is_none(registry: Registry) -> None:
    assert registry.fleet.set(TWO, actor="me", reason="first")
    assert registry.fleet.set(ONE, actor="me", reason="second")
    assert not registry.fleet.set(ONE, actor="me", reason="again")
    assert registry.fleet.desired() == [ONE, TWO]
    stopped = replace(ONE, state="stopped")
    assert registry.fleet.set(stopped, actor="scaler", reason="too many")
    assert registry.fleet.get(ONE.service) == stopped
    last = changes(registry)[-1]
    assert (last["from"]["state"], last["to"]["state"]) == ("running", "stopped")
    assert last["reason"] == "too many"
    assert len(changes(registry)) == 3


def test_a_removed_replica_leaves_its_history(registry: Registry) -> None:
    registry.fleet.set(ONE, actor="me", reason="come")
    assert registry.fleet.remove(ONE.service, actor="me", reason="go")
    assert not registry.fleet.remove(ONE.service, actor="me", reason="go")
    assert registry.fleet.desired() == []
    assert changes(registry)[-1]["to"] is None
    assert fsck(registry).problems == ()


def test_two_services_can_not_have_one_address(registry: Registry) -> None:
    registry.fleet.set(ONE, actor="me", reason="come")
    with pytest.raises(ConflictError, match="replica-8001"):
        registry.fleet.set(replace(ONE, service="other"), actor="me", reason="too")
    assert registry.fleet.desired() == [ONE]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("service", "../etc"),
        ("service", ""),
        ("host", "a b"),
        ("port", 0),
        ("model", "x/y"),
        ("alias", "UPPER"),
        ("weight", 257),
        ("state", "asleep"),
        ("device", "tpu"),
    ],
)
def test_a_malformed_field_is_named_and_nothing_is_kept(
    registry: Registry, field: str, value: object
) -> None:
    bad = replace(ONE, **{field: value})  # type: ignore[arg-type]
    with pytest.raises(InputError) as caught:
        registry.fleet.set(bad, actor="me", reason="try")
    assert caught.value.where == field
    assert registry.fleet.desired() == [] and changes(registry) == []


def test_a_change_behind_the_logs_back_is_found(registry: Registry) -> None:
    registry.fleet.set(ONE, actor="me", reason="come")
    assert fsck(registry).problems == ()
    with registry.database.write() as connection:
        connection.execute(update(desired_replica).values(weight=0))
    (problem,) = fsck(registry).problems
    assert "replicas: replica-8001" in problem


def test_the_control_plane_records_what_it_saw_but_not_what_a_table_holds(
    registry: Registry,
) -> None:
    event = registry.record("recovery.started", "replica-8001", {"attempt": 1}, actor="dagster")
    assert (event.kind, event.subject, event.body) == (
        "recovery.started",
        "replica-8001",
        {"attempt": 1},
    )
    for kind in ("alias.moved", "replica.desired", "recovery", "recovery.", "weather.rain"):
        with pytest.raises(InputError, match="kind of event"):
            registry.record(kind, "x", {}, actor="dagster")
    assert registry.audit.verify().ok
