"""The official client, hang-ups, overload and large bodies, over real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import urlsplit

import httpx
import openai
import pytest

from serving.text.codec import TextCodec
from tests.unit.serving.api.live import serve, wait_until
from tests.unit.serving.api.scripted import DIGEST, NAME, ScriptedHub, ScriptedModel

ANSWER = "Iron 🏴‍☠️ works: the answer is é 漢字, STOP and more."
MESSAGES: list[dict[str, str]] = [{"role": "user", "content": "hello"}]


@pytest.fixture
def hub(demo_model_dir: object) -> ScriptedHub:
    codec = TextCodec.from_directory(demo_model_dir)  # type: ignore[arg-type]
    return ScriptedHub(ScriptedModel(codec, codec.encode(ANSWER)))


@pytest.fixture
def address(hub: ScriptedHub) -> Iterator[str]:
    with serve(hub, max_slots=2, max_waiting=1) as address:
        yield address


@pytest.fixture
def client(address: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="unused", max_retries=0) as client:
        yield client


def test_the_openai_client_streams_a_chat(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=NAME,
        messages=MESSAGES,  # type: ignore[arg-type]
        stream=True,
        stop="STOP",
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == ANSWER.partition("STOP")[0]
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens > chunks[-1].usage.completion_tokens > 0
    assert {chunk.system_fingerprint for chunk in chunks} == {f"iw-{DIGEST[:12]}"}


def test_the_openai_client_reads_whole_answers_and_models(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=NAME,
        messages=MESSAGES,  # type: ignore[arg-type]
    )
    assert raw.headers["x-model-version"] == DIGEST[:12]
    assert raw.parse().choices[0].message.content == ANSWER
    text = client.completions.create(model=NAME, prompt=["a", "b"], max_tokens=50)
    assert [choice.text for choice in text.choices] == [ANSWER, ANSWER]
    parts = client.completions.create(model=NAME, prompt="a", max_tokens=50, stream=True)
    assert "".join(chunk.choices[0].text for chunk in parts) == ANSWER
    assert [model.id for model in client.models.list()] == [NAME]
    assert client.models.retrieve(NAME).id == NAME


def test_the_openai_client_raises_its_own_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model=NAME, messages=[])
    assert (bad.value.param, bad.value.type) == ("messages", "invalid_request_error")
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="gpt-9", messages=MESSAGES)  # type: ignore[arg-type]
    assert unknown.value.code == "model_not_found"


def test_a_failure_in_mid_stream_raises_in_the_client(
    client: openai.OpenAI, hub: ScriptedHub
) -> None:
    def fail(step: int) -> None:
        if step == 3:
            raise RuntimeError("boom")

    hub.model.before = fail
    stream = client.chat.completions.create(
        model=NAME,
        messages=MESSAGES,  # type: ignore[arg-type]
        stream=True,
    )
    with pytest.raises(openai.APIError, match="request id"):
        list(stream)
    hub.model.before = None
    assert client.completions.create(model=NAME, prompt="a").choices


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_hangs_up_frees_its_place(
    address: str, hub: ScriptedHub, stream: bool
) -> None:
    hub.model.held = True
    body = {"model": NAME, "messages": MESSAGES, "stream": stream}
    with httpx.Client(base_url=address, timeout=0.5) as client:
        if stream:
            with client.stream("POST", "/v1/chat/completions", json=body) as response:
                assert next(response.iter_lines()).startswith("data: ")
        else:
            with pytest.raises(httpx.ReadTimeout):
                client.post("/v1/chat/completions", json=body)
    wait_until(lambda: hub.model.running == 0)
    assert (hub.model.cancelled, hub.leases) == (1, 0)
    metrics = httpx.get(f"{address}/metrics").text
    # The one token that was generated is accounted all the same.
    assert f'generate_tokens_total{{endpoint="/v1/chat/completions",model="{NAME}"}} 1.0' in metrics
    assert (
        'ironworks_http_requests_total{endpoint="/v1/chat/completions",status="499"} 1.0' in metrics
    )


def test_a_full_server_says_when_to_return_and_takes_the_rest(
    address: str, hub: ScriptedHub
) -> None:
    hub.model.held = True
    body = {"model": NAME, "messages": MESSAGES}
    with httpx.Client(base_url=address, timeout=60) as client, ThreadPoolExecutor(3) as pool:
        running = [pool.submit(client.post, "/v1/chat/completions", json=body) for _ in range(3)]
        wait_until(lambda: hub.model.running == 3)
        refused = client.post("/v1/chat/completions", json=body)
        hub.model.held = False
        answered = [future.result() for future in running]
        after = client.post("/v1/chat/completions", json=body)
        metrics = client.get("/metrics").text
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert [response.status_code for response in (*answered, after)] == [200] * 4
    assert (
        f'ironworks_admission_rejections_total{{model_name="{NAME}",reason="full"}} 1.0' in metrics
    )


@pytest.mark.parametrize("megabytes", [5, 10, 40])
def test_a_large_body_is_answered_before_the_connection_ends(address: str, megabytes: int) -> None:
    body = b'{"model": "' + b"a" * (megabytes * 1024 * 1024) + b'"}'
    with httpx.Client(base_url=address, timeout=60) as client:
        headers = {"content-type": "application/json"}
        whole = client.post("/v1/chat/completions", content=body, headers=headers)
        chunked = client.post(
            "/v1/chat/completions",
            content=(body[start : start + 65536] for start in range(0, len(body), 65536)),
            headers=headers,
        )
        assert client.get("/livez").status_code == 200
    for response in (whole, chunked):
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "request_too_large"


def test_a_body_that_never_ends_leaves_the_server_well(address: str) -> None:
    parts = urlsplit(address)
    with closing(socket.create_connection((parts.hostname, parts.port))) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
            b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
    wait_until(
        lambda: 'status="499"} 1.0' in httpx.get(f"{address}/metrics").text,
    )
    assert httpx.get(f"{address}/livez").status_code == 200
