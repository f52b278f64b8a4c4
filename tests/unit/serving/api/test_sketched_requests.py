"""What the public API leaves in the sketches: counts of answered requests, by outcome."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from serving.api.app import create_app
from serving.hub.errors import EngineDiedError
from serving.settings import Settings
from serving.telemetry.sketches import WINDOW_REQUESTS, Sketches
from tests.unit.serving.api.scripted import DIGEST, NAME, ScriptedHub

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
SECRET = "the cellar's door opens with xyzzy"
OUTCOMES = ("ok", "empty", "error", "hung_up")


def body(**fields: Any) -> dict[str, Any]:
    return {"model": NAME, "messages": [{"role": "user", "content": SECRET}], **fields}


async def sketched(hub: ScriptedHub, *bodies: dict[str, Any]) -> dict[str, Any]:
    sketches = Sketches()
    transport = httpx.ASGITransport(create_app(hub, Settings(), sketches))
    async with httpx.AsyncClient(transport=transport, base_url="http://replica") as client:
        for one in bodies:
            await client.post(CHAT, json=one)
    return sketches.as_json()


async def test_answers_are_counted_and_prompts_are_not_kept(hub: ScriptedHub) -> None:
    shown = await sketched(hub, *[body(stream=n % 2 == 0) for n in range(WINDOW_REQUESTS)])
    (stream,) = shown["streams"]
    assert (stream["model"], stream["digest"], stream["route"]) == (NAME, DIGEST, CHAT)
    (window,) = stream["windows"]
    outcomes = dict(zip(OUTCOMES, window["counts"]["outcome"], strict=True))
    assert outcomes == {"ok": WINDOW_REQUESTS, "empty": 0, "error": 0, "hung_up": 0}
    assert sum(window["counts"]["ttft_seconds"]) == WINDOW_REQUESTS
    text = json.dumps(shown)
    assert not any(word in text for word in SECRET.split() if len(word) > 4)


async def test_failures_and_empty_answers_show_as_such(hub: ScriptedHub) -> None:
    def die(step: int) -> None:
        raise EngineDiedError("the engine died")

    hub.model.before = die
    failing = await sketched(hub, *[body(stream=n % 2 == 0) for n in range(WINDOW_REQUESTS)])
    hub.model.before = None
    hub.model.answer = hub.model.codec.encode(" ")
    empty = await sketched(hub, *[body() for _ in range(WINDOW_REQUESTS)])
    for shown, outcome in ((failing, "error"), (empty, "empty")):
        (window,) = shown["streams"][0]["windows"]
        counts = dict(zip(OUTCOMES, window["counts"]["outcome"], strict=True))
        assert counts[outcome] == WINDOW_REQUESTS


async def test_requests_that_were_refused_are_no_traffic_of_the_model(hub: ScriptedHub) -> None:
    shown = await sketched(hub, *[body(max_tokens=10**6) for _ in range(WINDOW_REQUESTS)])
    assert shown["streams"] == []
