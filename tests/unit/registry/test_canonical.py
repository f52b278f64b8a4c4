from __future__ import annotations

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from registry.canonical import MAX_INTEGER, canonical
from registry.errors import InputError

keys = st.text(st.characters(max_codepoint=127), max_size=12)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER, MAX_INTEGER)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=20
)


@given(values)
def test_the_bytes_are_those_of_rfc_8785(value: object) -> None:
    assert canonical(value) == rfc8785.dumps(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": [1, 0.5]}, "$.a[1]"),
        ({"a": MAX_INTEGER + 1}, "$.a"),
        ({"ключ": 1}, "$"),
        ({1: "a"}, "$"),
        (["\ud800"], "$[0]"),
        ({"a": b"bytes"}, "$.a"),
    ],
)
def test_what_has_no_canonical_form_is_refused_by_its_path(value: object, where: str) -> None:
    with pytest.raises(InputError) as caught:
        canonical(value)  # type: ignore[arg-type]
    assert caught.value.where == where
