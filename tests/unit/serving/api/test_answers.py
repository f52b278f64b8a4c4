"""What a good request gets: OpenAI's objects, the version that answered, exact text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from serving.hub.errors import EngineDiedError, EngineUnavailableError, RequestFailedError
from serving.hub.protocol import ReadyState
from serving.text.chat_template import ChatTemplate
from serving.text.codec import TextCodec
from tests.unit.serving.api.conftest import ANSWER
from tests.unit.serving.api.scripted import DIGEST, NAME, ScriptedHub

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
GOOD_CHAT: dict[str, Any] = {"model": NAME, "messages": [{"role": "user", "content": "hello"}]}
GOOD_TEXT: dict[str, Any] = {"model": NAME, "prompt": "hello"}


def events(response: httpx.Response) -> list[dict[str, Any]]:
    """The JSON of a stream's events, having checked the framing around them."""
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    *parts, done, rest = response.content.decode("utf-8").split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    assert all(part.startswith("data: ") and "\n" not in part for part in parts)
    return [json.loads(part.removeprefix("data: ")) for part in parts]


async def test_a_chat_answer_is_openais_object_and_names_its_version(
    connect: Callable[..., Any], hub: ScriptedHub
) -> None:
    async with connect() as client:
        response = await client.post(CHAT, json=GOOD_CHAT)
    body = response.json()
    tokens = len(hub.model.answer)
    prompt = len(hub.model.seen[0][0])
    assert body.pop("id").startswith("chatcmpl-")
    assert isinstance(body.pop("created"), int)
    assert body == {
        "object": "chat.completion",
        "model": NAME,
        "system_fingerprint": f"iw-{DIGEST[:12]}",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": ANSWER, "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": tokens,
            "total_tokens": prompt + tokens,
        },
    }
    assert response.headers["x-model-version"] == DIGEST[:12]


async def test_a_chat_stream_is_role_then_text_then_reason(
    connect: Callable[..., Any],
) -> None:
    async with connect() as client:
        response = await client.post(CHAT, json=GOOD_CHAT | {"stream": True})
    chunks = events(response)
    assert response.headers["x-model-version"] == DIGEST[:12]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk["id"], chunk["created"]) for chunk in chunks}) == 1
    assert not any("usage" in chunk for chunk in chunks)
    first, *middle, last = (chunk["choices"][0] for chunk in chunks)
    assert first["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert "".join(choice["delta"]["content"] for choice in middle) == ANSWER
    assert all(choice["finish_reason"] is None for choice in (first, *middle))
    assert (last["delta"], last["finish_reason"]) == ({}, "stop")


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_include_usage_adds_one_chunk_without_choices(
    connect: Callable[..., Any], hub: ScriptedHub, path: str
) -> None:
    good = GOOD_CHAT if path == CHAT else GOOD_TEXT
    async with connect() as client:
        response = await client.post(
            path, json=good | {"stream": True, "stream_options": {"include_usage": True}}
        )
    *chunks, usage = events(response)
    assert all(chunk["usage"] is None for chunk in chunks)
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == len(hub.model.answer)
    assert usage["usage"]["prompt_tokens"] == len(hub.model.seen[0][0])


async def test_max_tokens_ends_with_length(connect: Callable[..., Any]) -> None:
    async with connect() as client:
        for name in ("max_tokens", "max_completion_tokens"):
            body = (await client.post(CHAT, json=GOOD_CHAT | {name: 3})).json()
            assert body["choices"][0]["finish_reason"] == "length"
            assert body["usage"]["completion_tokens"] == 3


async def test_several_prompts_give_one_choice_each(
    connect: Callable[..., Any], hub: ScriptedHub
) -> None:
    async with connect() as client:
        prompts = ["one", "two and more", "three"]
        whole = (await client.post(TEXT, json=GOOD_TEXT | {"prompt": prompts})).json()
        streamed = events(
            await client.post(TEXT, json=GOOD_TEXT | {"prompt": prompts, "stream": True})
        )
        ids = (await client.post(TEXT, json=GOOD_TEXT | {"prompt": [[5, 6], [7]]})).json()
    assert [(c["index"], c["text"]) for c in whole["choices"]] == [(i, ANSWER) for i in range(3)]
    texts = ["", "", ""]
    for chunk in streamed:
        texts[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
    assert texts == [ANSWER] * 3
    assert whole["usage"]["completion_tokens"] == 3 * len(hub.model.answer)
    assert ids["usage"]["prompt_tokens"] == 3
    assert [prompt for prompt, _ in hub.model.seen[-2:]] == [(5, 6), (7,)]


async def test_sampling_reaches_the_engine_with_openais_defaults(
    connect: Callable[..., Any], hub: ScriptedHub
) -> None:
    chosen = {"temperature": 0, "top_p": 0.5, "top_k": 7, "seed": 3, "stop_token_ids": [9]}
    async with connect() as client:
        await client.post(CHAT, json=GOOD_CHAT)
        await client.post(TEXT, json=GOOD_TEXT | chosen | {"ignore_eos": True, "max_tokens": 5})
    (prompt, default), (_, given) = hub.model.seen
    assert (default.temperature, default.top_p, default.top_k, default.seed) == (1.0, 1.0, 0, None)
    assert default.max_tokens == hub.model.max_model_len - len(prompt)
    assert (given.temperature, given.top_p, given.top_k, given.seed) == (0, 0.5, 7, 3)
    assert (given.stop_token_ids, given.ignore_eos, given.max_tokens) == ((9,), True, 5)


async def test_developer_and_text_parts_are_what_the_template_calls_system_and_text(
    connect: Callable[..., Any], hub: ScriptedHub, codec: TextCodec
) -> None:
    parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    messages = [
        {"role": "developer", "content": "be brief", "name": "boss"},
        {"role": "user", "content": parts},
    ]
    async with connect() as client:
        await client.post(CHAT, json={"model": NAME, "messages": messages})
    plain = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    assert hub.model.seen[0][0] == tuple(codec.render_chat(plain))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    text=st.text(alphabet="ab🏴‍☠️é漢 .", min_size=1, max_size=40),
    stop=st.text(alphabet="ab🏴é漢 .", min_size=1, max_size=4),
)
async def test_a_stream_says_what_the_whole_answer_says(
    connect: Callable[..., Any], hub: ScriptedHub, codec: TextCodec, text: str, stop: str
) -> None:
    hub.model.answer = codec.encode(text)
    expected = codec.decode(hub.model.answer).partition(stop)[0]
    async with connect() as client:
        whole = (await client.post(CHAT, json=GOOD_CHAT | {"stop": stop})).json()
        chunks = events(await client.post(CHAT, json=GOOD_CHAT | {"stop": [stop], "stream": True}))
    streamed = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
    assert whole["choices"][0]["message"]["content"] == expected
    assert "".join(streamed) == expected
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in streamed)


async def test_a_stop_string_ends_the_work_at_the_engine(
    connect: Callable[..., Any], hub: ScriptedHub
) -> None:
    async with connect() as client:
        body = (await client.post(CHAT, json=GOOD_CHAT | {"stop": "France"})).json()
    assert body["choices"][0]["message"]["content"] == "The capital of "
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] < len(hub.model.answer)
    assert (hub.model.cancelled, hub.model.running, hub.leases) == (1, 0, 0)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (EngineDiedError("the engine died", fix="retry"), 503, "engine_died"),
        (RequestFailedError("no room", code="kv_exhausted"), 500, "kv_exhausted"),
        (RequestFailedError("bad ids", code="invalid_input"), 400, "invalid_input"),
    ],
)
async def test_a_failure_before_the_first_token_has_its_http_status(
    connect: Callable[..., Any],
    hub: ScriptedHub,
    stream: bool,
    error: Exception,
    status: int,
    code: str,
) -> None:
    def fail(step: int) -> None:
        raise error

    hub.model.before = fail
    async with connect() as client:
        response = await client.post(CHAT, json=GOOD_CHAT | {"stream": stream})
    assert response.status_code == status
    assert response.json()["error"]["code"] == code
    assert hub.leases == 0


async def test_a_failure_in_mid_stream_is_the_last_event(
    connect: Callable[..., Any], hub: ScriptedHub
) -> None:
    def fail(step: int) -> None:
        if step == 2:
            raise EngineDiedError("the engine died", fix="send the request again")

    hub.model.before = fail
    async with connect() as client:
        response = await client.post(CHAT, json=GOOD_CHAT | {"stream": True})
    assert response.status_code == 200
    *_, last, rest = response.text.split("\n\n")
    assert rest == ""
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "engine_died"
    assert hub.leases == 0


async def test_an_answer_cut_by_a_drain_is_an_error_and_not_a_short_answer(
    connect: Callable[..., Any], hub: ScriptedHub
) -> None:
    hub.model.final_reason = "cancelled"
    async with connect() as client:
        response = await client.post(CHAT, json=GOOD_CHAT)
    assert response.status_code == 503
    assert "retry-after" in response.headers


async def test_an_engine_that_restarts_is_503_with_retry_after(
    connect: Callable[..., Any], hub: ScriptedHub
) -> None:
    hub.refusal = EngineUnavailableError("the engine restarts", fix="retry", retry_after=4.2)
    hub.state = ReadyState(False, "smollm2-135m: restarting")
    async with connect() as client:
        response = await client.post(CHAT, json=GOOD_CHAT)
        ready = await client.get("/readyz")
        live = await client.get("/livez")
    assert (response.status_code, response.headers["retry-after"]) == (503, "5")
    assert ready.status_code == 503
    assert "restarting" in ready.json()["error"]["message"]
    assert live.status_code == 200


async def test_progress_is_503_only_while_work_stands_still(
    connect: Callable[..., Any], hub: ScriptedHub
) -> None:
    async with connect(stall_seconds=5) as client:
        good = await client.get("/healthz/progress")
        assert (good.status_code, good.json()["engines"][0]["steps"]) == (200, 7)
        hub.stalled_seconds = 5.5
        stuck = await client.get("/healthz/progress")
        assert stuck.status_code == 503
        assert stuck.json()["error"]["code"] == "no_progress"
        assert NAME in stuck.json()["error"]["message"]
        assert (await client.get("/livez")).status_code == 200
        hub.stalled_seconds = 0.0
        assert (await client.head("/healthz/progress")).status_code == 200


async def test_messages_the_template_refuses_are_a_400(
    connect: Callable[..., Any], hub: ScriptedHub, demo_model_dir: Path
) -> None:
    tokenizer = Tokenizer.from_file(str(demo_model_dir / "tokenizer.json"))
    refusing = ChatTemplate("{{ raise_exception('roles must alternate') }}", {})
    async with connect() as client:
        for template, reason in ((refusing, "roles must alternate"), (None, "/v1/completions")):
            hub.model.codec = TextCodec(tokenizer, template)
            response = await client.post(CHAT, json=GOOD_CHAT)
            assert response.status_code == 400
            assert response.json()["error"]["param"] == "messages"
            assert reason in response.json()["error"]["message"]
    assert hub.leases == 0


async def test_models_are_listed_with_their_version(connect: Callable[..., Any]) -> None:
    async with connect() as client:
        listed = (await client.get("/v1/models")).json()
        single = await client.get(f"/v1/models/{NAME}")
    assert listed["object"] == "list"
    assert listed["data"] == [single.json()]
    assert single.json() | {"created": 0} == {
        "id": NAME,
        "object": "model",
        "created": 0,
        "owned_by": "ironworks",
        "version": "v1",
        "digest": DIGEST,
        "max_model_len": 256,
        "state": "ready",
    }
    assert single.headers["x-model-version"] == DIGEST[:12]


@pytest.mark.parametrize(
    ("given", "kept"),
    [("my-id.7", True), ("a" * 129, False), ("two words", False), ("", False), ("é", False)],
)
async def test_a_request_id_is_kept_when_fit_to_be_logged(
    connect: Callable[..., Any], given: str, kept: bool
) -> None:
    async with connect() as client:
        for path, status in (("/livez", 200), ("/nowhere", 404)):
            response = await client.get(path, headers={"x-request-id": given.encode()})
            assert response.status_code == status
            assert (response.headers["x-request-id"] == given) is kept


async def test_the_schema_describes_the_bodies(connect: Callable[..., Any]) -> None:
    async with connect() as client:
        schema = (await client.get("/openapi.json")).json()
    body = schema["paths"][CHAT]["post"]["requestBody"]["content"]["application/json"]["schema"]
    name = body["$ref"].removeprefix("#/components/schemas/")
    assert {"model", "messages"} <= set(schema["components"]["schemas"][name]["required"])
