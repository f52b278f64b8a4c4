"""Aliases move only through policy, from where the caller thinks they are, and on record."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from registry.audit import Event
from registry.errors import (
    ConflictError,
    InputError,
    IntegrityError,
    IronworksError,
    NotFoundError,
    PolicyError,
)
from registry.gates import Outcome, judge
from registry.policy import SPINE_GATES
from registry.store import Alias, Registry, Version
from tests.support.checkpoints import flip_byte
from tests.support.plain_checkpoint import SHARDS, write_checkpoint
from tests.support.registered import add_version

Add = Callable[[str], Version]


def gate(registry: Registry, ref: str, name: str, outcome: Outcome = "pass") -> int:
    return registry.record_gate(
        ref, gate=name, outcome=outcome, numbers={"files": 6}, actor="run", run_id="r1"
    ).id


def pass_all(registry: Registry, ref: str) -> list[int]:
    return [gate(registry, ref, name) for name in SPINE_GATES]


def promote(registry: Registry, ref: str, **options: object) -> Alias:
    return registry.promote(
        ref,
        alias="production",
        actor="alice",
        reason="release",
        **options,  # type: ignore[arg-type]
    )


def rollback(registry: Registry, to: str | None = None) -> Alias:
    return registry.rollback("tiny", alias="production", actor="bob", reason="worse", to=to)


def moves(registry: Registry) -> list[Event]:
    return [event for event in registry.audit.events() if event.kind.startswith("alias.")]


def test_a_promotion_is_on_record_with_its_reasons(registry: Registry, add: Add) -> None:
    version = add("tiny@v1")
    ids = pass_all(registry, "tiny@v1")
    alias = promote(registry, "tiny@v1", expected=None)
    assert alias == registry.alias("tiny", "production")
    assert (alias.digest, alias.revision, alias.actor) == (version.digest, 1, "alice")
    (event,) = moves(registry)
    assert (event.kind, event.actor, event.subject) == ("alias.moved", "alice", "tiny:production")
    assert event.body == {
        "from": None,
        "to": version.digest,
        "revision": 1,
        "reason": "release",
        "policy": registry.policy.digest,
        "rule": {"gates": list(SPINE_GATES), "max_age_seconds": 30 * 86_400},
        "gates": ids,
    }


def test_promoting_to_where_it_is_changes_nothing(registry: Registry, add: Add) -> None:
    add("tiny@v1")
    pass_all(registry, "tiny@v1")
    first = promote(registry, "tiny@v1")
    assert promote(registry, "tiny@v1") == first
    assert len(moves(registry)) == 1


def test_every_gate_that_stands_in_the_way_is_named(registry: Registry, add: Add) -> None:
    add("tiny@v1")
    gate(registry, "tiny@v1", "integrity")
    gate(registry, "tiny@v1", "safe_files")
    gate(registry, "tiny@v1", "safe_files", "fail")
    gate(registry, "tiny@v1", "config_sanity", "inconclusive")
    with pytest.raises(PolicyError) as caught:
        promote(registry, "tiny@v1")
    for reason in ("safe_files: fail", "config_sanity: inconclusive", "loads_and_answers: no resu"):
        assert reason in caught.value.what
    assert "integrity" not in caught.value.what
    assert registry.alias("tiny", "production") is None
    assert moves(registry) == []


def test_gates_of_one_version_say_nothing_of_another(registry: Registry, add: Add) -> None:
    add("tiny@v1"), add("tiny@v2")
    pass_all(registry, "tiny@v1")
    with pytest.raises(PolicyError):
        promote(registry, "tiny@v2")


def write_policy(registry: Registry, gates: list[str], seconds: int) -> None:
    rule = {"gates": gates, "max_age_seconds": seconds}
    (registry.root / "policy.json").write_text(json.dumps({"aliases": {"*": rule}}))


def test_a_changed_policy_asks_for_fresh_results(registry: Registry, add: Add) -> None:
    add("tiny@v1")
    pass_all(registry, "tiny@v1")
    write_policy(registry, ["integrity"], 3600)
    with pytest.raises(PolicyError, match="integrity: measured under another policy"):
        promote(registry, "tiny@v1")
    gate(registry, "tiny@v1", "integrity")
    assert promote(registry, "tiny@v1").revision == 1


def test_results_expire(registry: Registry, add: Add) -> None:
    add("tiny@v1")
    write_policy(registry, ["integrity"], 3600)
    gate(registry, "tiny@v1", "integrity")
    (result,) = results = registry.gates("tiny@v1")
    assert abs(result.expires_us - result.recorded_us - 3_600_000_000) < 60_000_000
    end = min(result.expires_us, result.recorded_us + 3_600_000_000)
    assert judge(results, registry.policy, "production", end - 1).reasons == ()
    (reason,) = judge(results, registry.policy, "production", end).reasons
    assert reason.startswith("integrity: expired at ")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"aliases": {}}',
        '{"aliases": {"*": {"gates": "integrity", "max_age_seconds": 1}}}',
        '{"aliases": {"*": {"gates": [], "max_age_seconds": 0}}}',
        '{"aliases": {"*": {"gates": []}}}',
        '{"aliases": {"*": {"gates": [], "max_age_seconds": 1}}, "extra": 1}',
    ],
)
def test_a_malformed_policy_lets_nothing_through(registry: Registry, add: Add, text: str) -> None:
    add("tiny@v1")
    (registry.root / "policy.json").write_text(text)
    with pytest.raises(InputError, match=r"policy\.json"):
        promote(registry, "tiny@v1")


def test_compare_and_set(registry: Registry, add: Add) -> None:
    for name in ("tiny@v1", "tiny@v2"):
        add(name)
        pass_all(registry, name)
    with pytest.raises(ConflictError, match="points at nothing"):
        promote(registry, "tiny@v1", expected="tiny@v2")
    promote(registry, "tiny@v1", expected=None)
    with pytest.raises(ConflictError):
        promote(registry, "tiny@v2", expected=None)
    assert promote(registry, "tiny@v2", expected="tiny@v1").revision == 2


def test_a_damaged_version_is_not_promoted(registry: Registry, add: Add) -> None:
    version = add("tiny@v1")
    pass_all(registry, "tiny@v1")
    damage(registry, version)
    registry.check_integrity("tiny@v1")
    with pytest.raises(IntegrityError, match=SHARDS[0]):
        promote(registry, "tiny@v1")


def damage(registry: Registry, version: Version) -> None:
    digest = next(e.sha256 for e in version.manifest.files if e.path == SHARDS[0])
    flip_byte(registry.root / "blobs" / "sha256" / digest[:2] / digest)


def three(registry: Registry, add: Add) -> list[Version]:
    versions = [add(f"tiny@v{number}") for number in (1, 2, 3)]
    for version in versions:
        pass_all(registry, version.name)
        promote(registry, version.name)
    return versions


def test_rollback_goes_back_one_version_at_a_time(registry: Registry, add: Add) -> None:
    one, two, _ = three(registry, add)
    assert rollback(registry).digest == two.digest
    assert rollback(registry).digest == one.digest
    with pytest.raises(NotFoundError, match="no earlier version"):
        rollback(registry)
    assert [event.kind for event in moves(registry)][-2:] == ["alias.rolled_back"] * 2
    assert moves(registry)[-1].body["from"] == two.digest


def test_rollback_needs_no_gates_but_only_former_holders(registry: Registry, add: Add) -> None:
    one, _, _ = three(registry, add)
    add("tiny@v4")
    write_policy(registry, ["a_gate_nobody_ran"], 1)
    with pytest.raises(NotFoundError, match="never held"):
        rollback(registry, to="tiny@v4")
    assert rollback(registry, to="tiny@v1").digest == one.digest


def test_rollback_never_skips_integrity(registry: Registry, add: Add) -> None:
    _, two, three_ = three(registry, add)
    damage(registry, two)
    with pytest.raises(IntegrityError, match="tiny@v2 is damaged"):
        rollback(registry)
    current = registry.alias("tiny", "production")
    assert current is not None and current.digest == three_.digest
    assert rollback(registry, to="tiny@v1").revision == 4


def test_there_is_nothing_to_roll_back(registry: Registry, add: Add) -> None:
    add("tiny@v1")
    with pytest.raises(NotFoundError, match="points nowhere"):
        rollback(registry)


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(st.sampled_from(["a", "b", "c", "back"]), max_size=12))
def test_any_sequence_of_moves_matches_a_stack(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    folder: Path = tmp_path_factory.mktemp("moves")
    stack: list[str] = []
    with Registry.open(folder / "registry") as registry:
        digests = {}
        for fill, name in enumerate("abc"):
            source = write_checkpoint(folder / name, fill=fill)
            digests[name] = add_version(registry, source, f"tiny@{name}").digest
            pass_all(registry, f"tiny@{name}")
        for step in steps:
            if step == "back":
                try:
                    rollback(registry)
                    stack.pop()
                except IronworksError:
                    assert len(stack) < 2
            else:
                promote(registry, f"tiny@{step}")
                if stack[-1:] != [step]:
                    stack.append(step)
            alias = registry.alias("tiny", "production")
            assert (alias.digest if alias else None) == (digests[stack[-1]] if stack else None)
        assert registry.audit.verify().ok


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"outcome": "maybe"}, "outcome"),
        ({"gate": "Not A Gate"}, "gate"),
        ({"numbers": {"x": 0.5}}, "$.x"),
        ({"run_id": ""}, "run_id"),
        ({"actor": ""}, "actor"),
    ],
)
def test_a_malformed_result_is_refused(
    registry: Registry, add: Add, change: dict[str, object], where: str
) -> None:
    add("tiny@v1")
    fields = {"gate": "integrity", "outcome": "pass", "numbers": {}, "actor": "a", "run_id": "r"}
    with pytest.raises(InputError) as caught:
        registry.record_gate("tiny@v1", **{**fields, **change})  # type: ignore[arg-type]
    assert caught.value.where == where
    assert registry.gates("tiny@v1") == []
