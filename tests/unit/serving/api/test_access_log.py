"""One line per request with its outcome, and never a word of the prompt or the answer."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from serving.hub.protocol import ReadyState
from serving.telemetry.logging import configure_logging
from tests.unit.serving.api.conftest import ANSWER
from tests.unit.serving.api.scripted import DIGEST, NAME, ScriptedHub

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
SECRET = "xyzzy-plugh"
PROMPT: dict[str, Any] = {
    "model": NAME,
    "messages": [{"role": "user", "content": f"my password is {SECRET}"}],
}


class Log:
    def __init__(self) -> None:
        self.stream = io.StringIO()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    def requests(self) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["event"] == "request"]


@pytest.fixture
def log() -> Iterator[Log]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    log = Log()
    configure_logging("replica-1", level="DEBUG", stream=log.stream)
    yield log
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_good_request_is_one_line(
    connect: Callable[..., Any], hub: ScriptedHub, log: Log, stream: bool
) -> None:
    async with connect() as client:
        await client.post(
            CHAT, json=PROMPT | {"stream": stream}, headers={"x-request-id": "mine-1"}
        )
    (line,) = log.requests()
    assert line["ttft"] > 0
    assert line["seconds"] >= line["ttft"]
    assert line | {"ttft": 0, "seconds": 0, "ts": ""} == {
        "event": "request",
        "level": "info",
        "ts": "",
        "service": "replica-1",
        "request_id": "mine-1",
        "method": "POST",
        "endpoint": CHAT,
        "status": 200,
        "model_name": NAME,
        "model_version": DIGEST[:12],
        "stream": stream,
        "input_length": len(hub.model.seen[0][0]),
        "output_length": len(hub.model.answer),
        "ttft": 0,
        "seconds": 0,
        "finish_reason": "stop",
        "error_code": "",
    }
    assert SECRET not in log.stream.getvalue()
    assert ANSWER not in log.stream.getvalue()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("step", [0, 3])
async def test_a_failure_of_ours_is_found_by_its_id_and_quotes_nothing(
    connect: Callable[..., Any], hub: ScriptedHub, log: Log, stream: bool, step: int
) -> None:
    def fail(now: int) -> None:
        if now == step:
            raise ValueError(f"can't work with 'my password is {SECRET}'")

    hub.model.before = fail
    async with connect() as client:
        response = await client.post(CHAT, json=PROMPT | {"stream": stream})
        after = await client.post(CHAT, json=PROMPT | {"max_tokens": -1})
    request_id = response.headers["x-request-id"]
    told = response.text.strip().split("\n\n")[-1].removeprefix("data: ")
    assert response.status_code == (200 if stream and step else 500)
    assert json.loads(told)["error"]["code"] == "internal_error"
    assert request_id in told
    assert after.status_code == 400
    (failure,) = [line for line in log.lines() if "stack" in line]
    assert (failure["request_id"], failure["exception"]) == (request_id, "ValueError")
    assert any("scripted.py" in place for place in failure["stack"])
    assert log.requests()[0]["error_code"] == "internal_error"
    assert SECRET not in log.stream.getvalue() + response.text


async def test_refused_requests_leave_a_line_without_their_content(
    connect: Callable[..., Any], log: Log
) -> None:
    bodies = [
        json.dumps(PROMPT | {"model": SECRET}),
        json.dumps(PROMPT | {"messages": [{"role": SECRET, "content": ""}]}),
        json.dumps(PROMPT)[:-5],
        json.dumps(PROMPT | {"top_p": SECRET}),
    ]
    async with connect() as client:
        responses = [
            await client.post(CHAT, content=body, headers={"content-type": "application/json"})
            for body in bodies
        ]
        await client.get(f"/{SECRET}?q={SECRET}")
    assert [line["status"] for line in log.requests()] == [404, 400, 400, 400, 404]
    assert log.requests()[-1]["endpoint"] == "other"
    ours = [line for line in log.lines() if line.get("logger") != "httpx"]
    assert SECRET not in json.dumps(ours) + "".join(response.text for response in responses)


async def test_probes_are_counted_and_not_logged(
    connect: Callable[..., Any], hub: ScriptedHub, log: Log
) -> None:
    hub.state = ReadyState(False, "loading")
    async with connect() as client:
        for method in ("GET", "HEAD"):
            assert (await client.request(method, "/livez")).status_code == 200
            assert (await client.request(method, "/readyz")).status_code == 503
        counted = (await client.get("/metrics")).text
    assert log.requests() == []
    assert 'ironworks_http_requests_total{endpoint="/readyz",status="503"} 2.0' in counted
