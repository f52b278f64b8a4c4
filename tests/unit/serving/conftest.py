from __future__ import annotations

from pathlib import Path

import pytest

from serving.text.codec import TextCodec


@pytest.fixture(scope="session")
def codec(demo_model_dir: Path) -> TextCodec:
    return TextCodec.from_directory(demo_model_dir)
