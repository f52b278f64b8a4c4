from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.engine.messages import Ready
from tests.support.engine_peer import EnginePeer, load_request
from tests.support.tiny_models import ARCHITECTURES, save_tiny


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of a few thousand parameters; nothing may change it."""
    return save_tiny(ARCHITECTURES["llama"], tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[EnginePeer]:
    """A started engine process that has loaded nothing."""
    with EnginePeer(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[EnginePeer]:
    """One engine process for all tests of a module, which leave it idle and alive."""
    with EnginePeer(tmp_path_factory.mktemp("engine")) as started:
        yield serve(started, tiny_model)


@pytest.fixture
def mortal(peer: EnginePeer, tiny_model: Path) -> EnginePeer:
    """An engine process that serves, for a test that ends it."""
    return serve(peer, tiny_model)


def serve(peer: EnginePeer, model: Path) -> EnginePeer:
    """Load a model: 4 slots of 512 tokens, 32 tokens a step."""
    ready = peer.load(load_request(model, max_model_len=512))
    assert isinstance(ready, Ready)
    return peer
