"""Fixtures shared by every layer of tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    """Top of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def demo_model_dir() -> Path:
    """SmolLM2-135M-Instruct as three safetensors shards, as `make up` imports it.

    `make test` has fetched and converted it into the demo cache before pytest starts;
    IRONWORKS_TEST_MODEL names another directory.
    """
    configured = os.environ.get("IRONWORKS_TEST_MODEL")
    directory = Path(configured) if configured else REPOSITORY / "var" / "demo" / "model"
    if not (directory / "config.json").is_file():
        pytest.fail(
            f"no demo model in {directory}: run `make test`, which fetches it", pytrace=False
        )
    return directory
