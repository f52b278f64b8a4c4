"""Every bad input is a plain error that names the field and what to do, and costs nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.serving.api.scripted import NAME, ScriptedHub

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
USER = {"role": "user", "content": "hello"}
GOOD_CHAT: dict[str, Any] = {"model": NAME, "messages": [USER]}
GOOD_TEXT: dict[str, Any] = {"model": NAME, "prompt": "hello"}

BAD_FIELDS: list[tuple[str, dict[str, Any], str, str]] = [
    (CHAT, {"messages": []}, "messages", "invalid_value"),
    (CHAT, {"messages": "hello"}, "messages", "invalid_value"),
    (CHAT, {"messages": [{"role": "king", "content": "x"}]}, "messages[0].role", "invalid_value"),
    (CHAT, {"messages": [USER, {"role": "user"}]}, "messages[1].content", "missing_required"),
    (CHAT, {"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "invalid_value"),
    (CHAT, {"messages": [{"role": ["user"], "content": ""}]}, "messages[0].role", "invalid_value"),
    (CHAT, {"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role", "unsupported"),
    (
        CHAT,
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages[0].content",
        "unsupported",
    ),
    (
        CHAT,
        {"messages": [{"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}]},
        "messages[0].tool_calls",
        "unsupported",
    ),
    (CHAT, {"max_tokens": -1}, "max_tokens", "invalid_value"),
    (CHAT, {"max_tokens": 0}, "max_tokens", "invalid_value"),
    (CHAT, {"max_tokens": "12"}, "max_tokens", "invalid_value"),
    (CHAT, {"max_tokens": 10**30}, "max_tokens", "invalid_value"),
    (CHAT, {"max_completion_tokens": -7}, "max_completion_tokens", "invalid_value"),
    (CHAT, {"temperature": 2.5}, "temperature", "invalid_value"),
    (CHAT, {"top_p": 0}, "top_p", "invalid_value"),
    (CHAT, {"stop": ["ok", ""]}, "stop", "invalid_value"),
    (CHAT, {"stop": {"a": 1}}, "stop", "invalid_value"),
    (CHAT, {"stream": "yes"}, "stream", "invalid_value"),
    (CHAT, {"stream_options": {"include_usage": 1}}, "stream_options.include_usage", "invalid"),
    (CHAT, {"seed": 1.5}, "seed", "invalid_value"),
    (CHAT, {"model": 7}, "model", "invalid_value"),
    (CHAT, {"n": 2}, "n", "unsupported"),
    (CHAT, {"n": True}, "n", "unsupported"),
    (CHAT, {"logprobs": True}, "logprobs", "unsupported"),
    (CHAT, {"tools": [{"type": "function"}]}, "tools", "unsupported"),
    (CHAT, {"response_format": {"type": "json_object"}}, "response_format", "unsupported"),
    (CHAT, {"presence_penalty": 0.5}, "presence_penalty", "unsupported"),
    (CHAT, {"logit_bias": {"5": 10}}, "logit_bias", "unsupported"),
    (TEXT, {"prompt": ""}, "prompt", "invalid_value"),
    (TEXT, {"prompt": []}, "prompt", "invalid_value"),
    (TEXT, {"prompt": [[]]}, "prompt", "invalid_value"),
    (TEXT, {"prompt": [1, "a"]}, "prompt", "invalid_value"),
    (TEXT, {"prompt": [-1]}, "prompt", "invalid_value"),
    (TEXT, {"prompt": [True]}, "prompt", "invalid_value"),
    (TEXT, {"prompt": [10_000_000]}, "prompt", "invalid_value"),
    (TEXT, {"prompt": {"text": "a"}}, "prompt", "invalid_value"),
    (TEXT, {"prompt": ["a"] * 65}, "prompt", "invalid_value"),
    (TEXT, {"echo": True}, "echo", "unsupported"),
    (TEXT, {"best_of": 3}, "best_of", "unsupported"),
    (TEXT, {"suffix": "x"}, "suffix", "unsupported"),
]

BAD_BODIES: list[tuple[bytes, int, str]] = [
    (b"", 400, "invalid_json"),
    (b"{", 400, "invalid_json"),
    (b"[]", 400, "invalid_type"),
    (b"null", 400, "invalid_type"),
    (b'{"model": NaN}', 400, "invalid"),
    (b'\xff\xfe{"model": "x"}', 400, "invalid_utf8"),
    (b'{"model": "\xe9"}', 400, "invalid_utf8"),
    (b'{"model": "\\ud800"}', 400, "invalid_json"),
    (b"[" * 100_000, 400, "invalid_json"),
    (b'{"model": "' + b"a" * 10_000_000 + b'"}', 413, "request_too_large"),
]


@pytest.mark.parametrize(("path", "change", "param", "code"), BAD_FIELDS)
async def test_a_bad_field_is_named(
    connect: Callable[..., Any],
    hub: ScriptedHub,
    path: str,
    change: dict[str, Any],
    param: str,
    code: str,
) -> None:
    good = GOOD_CHAT if path == CHAT else GOOD_TEXT
    async with connect() as client:
        response = await client.post(path, json=good | change)
        error = response.json()["error"]
        assert response.status_code == 400
        assert error["param"] == param
        assert error["type"] == "invalid_request_error"
        assert error["code"].startswith(code)
        assert param in error["message"]
        assert (await client.post(path, json=good)).status_code == 200
    assert len(hub.model.seen) == 1  # nothing of the bad request reached the engine


@pytest.mark.parametrize(("field", "path"), [("model", CHAT), ("messages", CHAT), ("prompt", TEXT)])
async def test_a_missing_field_is_named(connect: Callable[..., Any], field: str, path: str) -> None:
    body = {
        name: value
        for name, value in (GOOD_CHAT if path == CHAT else GOOD_TEXT).items()
        if name != field
    }
    async with connect() as client:
        response = await client.post(path, json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == field
    assert response.json()["error"]["code"] == "missing_required_parameter"


@pytest.mark.parametrize(("body", "status", "code"), BAD_BODIES)
@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_a_bad_body_is_explained(
    connect: Callable[..., Any], path: str, body: bytes, status: int, code: str
) -> None:
    async with connect() as client:
        response = await client.post(
            path, content=body, headers={"content-type": "application/json"}
        )
    assert response.status_code == status
    assert response.json()["error"]["code"].startswith(code)
    assert len(response.content) < 500  # a large input is not sent back


async def test_a_body_not_declared_as_json_is_refused(connect: Callable[..., Any]) -> None:
    async with connect() as client:
        response = await client.post(
            CHAT, content=json.dumps(GOOD_CHAT), headers={"content-type": "text/plain"}
        )
    assert response.status_code == 415
    assert "application/json" in response.json()["error"]["message"]


async def test_an_unknown_model_is_404_and_a_long_name_is_not_echoed(
    connect: Callable[..., Any],
) -> None:
    async with connect() as client:
        unknown = await client.post(CHAT, json=GOOD_CHAT | {"model": "gpt-9"})
        long = await client.post(CHAT, json=GOOD_CHAT | {"model": "x" * 100_000})
        single = await client.get("/v1/models/gpt-9")
    for response in (unknown, single):
        assert response.status_code == 404
        assert response.json()["error"] | {"message": ""} == {
            "message": "",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    assert long.status_code == 400
    assert len(long.content) < 500


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "word " * 300}]}),
        (CHAT, {"messages": [USER], "max_tokens": 250}),
        (TEXT, {"prompt": "word " * 300}),
        (TEXT, {"prompt": [5] * 256}),
        (TEXT, {"prompt": [[5], [5] * 300]}),
    ],
)
async def test_what_does_not_fit_the_context_is_refused(
    connect: Callable[..., Any], path: str, body: dict[str, Any]
) -> None:
    async with connect() as client:
        response = await client.post(path, json={"model": NAME} | body)
    error = response.json()["error"]
    assert response.status_code == 400
    assert error["code"] == "context_length_exceeded"
    assert "256" in error["message"]


@pytest.mark.parametrize(
    "extra",
    [
        {"n": 1, "logprobs": False, "presence_penalty": 0, "frequency_penalty": 0.0},
        {"tools": None, "tool_choice": "none", "response_format": {"type": "text"}},
        {"user": "me", "metadata": {"a": "b"}, "never_heard_of": [1, 2]},
        {"max_tokens": None, "stop": None, "temperature": None, "seed": None, "stream": None},
    ],
)
async def test_fields_that_ask_for_nothing_are_accepted(
    connect: Callable[..., Any], extra: dict[str, Any]
) -> None:
    async with connect() as client:
        assert (await client.post(CHAT, json=GOOD_CHAT | extra)).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/nothing", 404), ("GET", CHAT, 405), ("DELETE", "/v1/models", 405)],
)
async def test_the_router_answers_in_the_same_shape(
    connect: Callable[..., Any], method: str, path: str, status: int
) -> None:
    async with connect() as client:
        response = await client.request(method, path)
    assert response.status_code == status
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
fields = st.sampled_from(
    [
        "model",
        "messages",
        "prompt",
        "max_tokens",
        "stop",
        "stream",
        "temperature",
        "top_k",
        "n",
        "stream_options",
        "stop_token_ids",
        "seed",
        "logprobs",
        "response_format",
    ]
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(path=st.sampled_from([CHAT, TEXT]), change=st.dictionaries(fields, json_values, max_size=3))
async def test_no_json_value_makes_the_server_fail(
    connect: Callable[..., Any], path: str, change: dict[str, Any]
) -> None:
    good = GOOD_CHAT if path == CHAT else GOOD_TEXT
    async with connect() as client:
        response = await client.post(
            path,
            content=json.dumps(good | change),
            headers={"content-type": "application/json"},
        )
    assert response.status_code in (200, 400, 404)
