"""A reference is frozen once, and the log can prove that it is the one of then."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest

from registry.canonical import canonical
from registry.errors import InputError, NotFoundError
from registry.store import Registry, Version


def test_the_first_one_stays(registry: Registry, add: Callable[[str], Version]) -> None:
    version = add("tiny@v1")
    assert registry.references.get("tiny@v1", "canary:cpu") is None
    first = registry.references.freeze("tiny@v1", "canary:cpu", {"n": [1, 2]}, actor="test")
    again = registry.references.freeze("tiny@v1", "canary:cpu", {"n": [3]}, actor="test")
    assert first == again == registry.references.get(version.digest, "canary:cpu")
    assert again.body == {"n": [1, 2]}
    (event,) = [e for e in registry.audit.events() if e.kind == "drift.frozen"]
    assert event.subject == version.digest
    assert event.body["sha256"] == hashlib.sha256(canonical(first.body)).hexdigest()
    assert registry.audit.verify().ok


def test_kinds_and_versions_have_their_own(
    registry: Registry, add: Callable[[str], Version]
) -> None:
    for name in ("tiny@v1", "tiny@v2"):
        add(name)
        for kind in ("canary:cpu", "traffic:abc:v1/completions:default"):
            registry.references.freeze(name, kind, {"of": f"{name} {kind}"}, actor="test")
    found = registry.references.get("tiny@v2", "canary:cpu")
    assert found is not None and found.body == {"of": "tiny@v2 canary:cpu"}


def test_what_is_refused(registry: Registry, add: Callable[[str], Version]) -> None:
    add("tiny@v1")
    with pytest.raises(InputError):
        registry.references.freeze("tiny@v1", "Canary!", {}, actor="test")
    with pytest.raises(InputError):
        registry.references.freeze("tiny@v1", "canary", {"n": 0.5}, actor="test")  # type: ignore[dict-item]
    with pytest.raises(NotFoundError):
        registry.references.freeze("tiny@v9", "canary", {}, actor="test")
    assert [e for e in registry.audit.events() if e.kind == "drift.frozen"] == []
