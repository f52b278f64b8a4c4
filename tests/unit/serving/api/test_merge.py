from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from serving.api.merge import merge

pytestmark = pytest.mark.anyio


class Source:
    """Counts up, and notes that it was closed."""

    def __init__(self, first: int, count: int, *, fail: bool = False) -> None:
        self.first, self.count, self.fail, self.closed = first, count, fail, False

    async def __call__(self) -> AsyncGenerator[int, None]:
        try:
            for item in range(self.first, self.first + self.count):
                await asyncio.sleep(0)
                yield item
            if self.fail:
                raise LookupError
        finally:
            self.closed = True


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_every_item_comes_once_and_in_its_sources_order(count: int) -> None:
    sources = [Source(100 * index, index + 3) for index in range(count)]
    items = [item async for item in merge([source() for source in sources])]
    for source in sources:
        own = [item for item in items if item // 100 == source.first // 100]
        assert own == list(range(source.first, source.first + source.count))
    assert len(items) == sum(source.count for source in sources)


@pytest.mark.parametrize("count", [1, 3])
async def test_closing_early_closes_every_source(count: int) -> None:
    sources = [Source(100 * index, 1000) for index in range(count)]
    merged = merge([source() for source in sources])
    seen = [await anext(merged) for _ in range(5)]
    await merged.aclose()
    assert len(seen) == 5
    assert all(source.closed for source in sources)


async def test_one_failure_ends_all() -> None:
    sources = [Source(0, 3, fail=True), Source(100, 10_000)]
    with pytest.raises(LookupError):
        async for _ in merge([source() for source in sources]):
            pass
    assert all(source.closed for source in sources)
