from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from serving.api.app import create_app
from serving.settings import Settings
from serving.text.codec import TextCodec
from tests.unit.serving.api.scripted import ScriptedHub, ScriptedModel

ANSWER = "The capital of France is Paris."


@pytest.fixture
def hub(codec: TextCodec) -> ScriptedHub:
    return ScriptedHub(ScriptedModel(codec, codec.encode(ANSWER)))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def connect(hub: ScriptedHub) -> Iterator[Callable[..., Any]]:
    """Open a client of an application of its own: ``async with connect(max_slots=1) as client``."""

    @asynccontextmanager
    async def client(**settings: Any) -> AsyncIterator[httpx.AsyncClient]:
        transport = httpx.ASGITransport(create_app(hub, Settings(**settings)))
        async with httpx.AsyncClient(transport=transport, base_url="http://replica") as opened:
            yield opened

    yield client
