"""The admin API over a hub with scripted engines, asked through its ASGI application."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from serving.api.admin import create_admin_app
from serving.hub.hub import Hub
from tests.unit.serving.hub.world import MODEL, World, until

Body = Callable[[Hub, httpx.AsyncClient], Awaitable[None]]


def run(world: World, body: Body) -> None:
    async def main() -> None:
        async with world.hub() as hub:
            transport = httpx.ASGITransport(create_admin_app(hub))
            async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
                await body(hub, client)

    asyncio.run(main())


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    assert error["message"] and error["code"]
    return error


def test_status_tells_what_every_model_does(world):
    async def body(hub: Hub, client: httpx.AsyncClient) -> None:
        status = (await client.get("/status")).json()
        assert status["ready"] and status["service"] == "r1"
        [model] = status["models"]
        assert (model["name"], model["version"], model["state"]) == (MODEL, "v1", "ready")
        assert model["digest"] == world.digest("v1")

    run(world, body)


def test_a_swap_reports_and_shows(world):
    async def body(hub: Hub, client: httpx.AsyncClient) -> None:
        report = (await client.post("/swap", json={"version": f"{MODEL}@v2"})).json()
        assert report["changed"] and report["digest"] == world.digest("v2")
        assert (await client.get("/status")).json()["models"][0]["version"] == "v2"
        memory = (await client.get("/debug/memory")).json()
        assert [engine["version"] for engine in memory["engines"]] == [f"{MODEL}@v2"]

    run(world, body)


def test_refusals_have_a_status_of_their_own(world):
    async def body(hub: Hub, client: httpx.AsyncClient) -> None:
        error_of(await client.post("/swap", json={"version": f"{MODEL}@v9"}), 404)
        for bad in (b"", b"[]", b'{"version": 1}', b'{"versoin": "x"}', b"\xff"):
            error_of(await client.post("/swap", content=bad), 400)
        error_of(await client.post("/drain", json={"seconds": "soon"}), 400)
        world.script(fail_load="bad_checkpoint")
        error = error_of(await client.post("/swap", json={"version": f"{MODEL}@v2"}), 400)
        assert (error["code"], error["fix"]) == ("bad_checkpoint", "copy it again")
        world.script(load_seconds=0.5)
        first = asyncio.create_task(client.post("/swap", json={"version": f"{MODEL}@v2"}))
        await until(lambda: hub.status()["models"][0]["swapping"])
        error_of(await client.post("/swap", json={"version": f"{MODEL}@v2"}), 409)
        assert (await first).status_code == 200

    run(world, body)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"seconds": 0}'])
def test_a_drained_replica_takes_no_swap(world, content):
    async def body(hub: Hub, client: httpx.AsyncClient) -> None:
        drained = await client.post("/drain", content=content)
        assert drained.json() == {"still_running": 0}
        error_of(await client.post("/swap", json={"version": f"{MODEL}@v2"}), 503)
        assert (await client.get("/status")).json()["reason"] == "draining"

    run(world, body)


def test_status_tells_why_an_engine_is_away(world):
    async def body(hub: Hub, client: httpx.AsyncClient) -> None:
        world.script(fail_load="bad_checkpoint")
        os.kill(hub.models()[0].engine_pid, signal.SIGKILL)
        await until(lambda: "scripted" in hub.status()["models"][0]["last_error"])
        status = (await client.get("/status")).json()
        assert status["reason"] == f"{MODEL} is restarting"
        assert "copy it again" in status["models"][0]["last_error"]

    run(world, body)
