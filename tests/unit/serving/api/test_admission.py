from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Counter

from serving.api.admission import LONGEST_RETRY_SECONDS, OVERLOADED, Admission
from serving.api.errors import ApiError


def make_admission(limit: int) -> Admission:
    rejections = Counter("rejections", "refused", ("model_name", "reason"), registry=None)
    return Admission(limit, rejections)


def admit(admission: Admission, stack: ExitStack, places: int = 1) -> bool:
    try:
        stack.enter_context(admission.admit("m", places, param="prompt"))
    except ApiError as error:
        assert error.status == 429
        assert 1 <= int(error.headers["retry-after"]) <= LONGEST_RETRY_SECONDS
        return False
    return True


@given(limit=st.integers(1, 8), sizes=st.lists(st.integers(1, 8), max_size=30))
def test_the_system_never_holds_more_than_its_limit(limit: int, sizes: list[int]) -> None:
    admission = make_admission(limit)
    held = 0
    with ExitStack() as stack:
        for size in (size for size in sizes if size <= limit):
            fits = held + size <= limit
            assert admit(admission, stack, size) is fits
            held += size * fits
    with ExitStack() as stack:  # everything was given back
        assert admit(admission, stack, limit)


def test_what_can_never_fit_is_the_clients_mistake() -> None:
    with pytest.raises(ApiError) as refused, make_admission(4).admit("m", 5, param="prompt"):
        pass
    assert (refused.value.status, refused.value.param) == (400, "prompt")


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_a_failed_request_gives_its_place_back(failure: Callable[[], BaseException]) -> None:
    admission = make_admission(1)
    with pytest.raises(BaseException), admission.admit("m", 1, param="prompt"):  # noqa: B017
        raise failure()
    with ExitStack() as stack:
        assert admit(admission, stack)


def test_behind_a_proxy_a_full_replica_asks_for_a_peer() -> None:
    rejections = Counter("rejections", "refused", ("model_name", "reason"), registry=None)
    admission = Admission(1, rejections, behind_proxy=True)
    with (
        admission.admit("m", 1, param="prompt"),
        pytest.raises(ApiError) as refused,
        admission.admit("m", 1, param="prompt"),
    ):
        pass
    assert refused.value.status == 503
    assert refused.value.headers[OVERLOADED] == "1"
    assert int(refused.value.headers["retry-after"]) >= 1
    assert refused.value.code == "rate_limit_exceeded"
