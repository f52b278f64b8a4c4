"""Several asynchronous generators as one, in the order in which their items come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

Item = TypeVar("Item")


async def merge(sources: Sequence[AsyncGenerator[Item, None]]) -> AsyncGenerator[Item, None]:
    """Yield the items of all ``sources``; the first failure of one ends all of them.

    Closing the merged generator closes every source.
    """
    if len(sources) == 1:
        async with aclosing(sources[0]) as only:
            async for item in only:
                yield item
        return

    items: asyncio.Queue[Item | BaseException | None] = asyncio.Queue()

    async def forward(source: AsyncGenerator[Item, None]) -> None:
        try:
            async with aclosing(source):
                async for item in source:
                    items.put_nowait(item)
        except Exception as error:
            items.put_nowait(error)
        else:
            items.put_nowait(None)

    tasks = [asyncio.create_task(forward(source)) for source in sources]
    try:
        running = len(tasks)
        while running:
            came = await items.get()
            if came is None:
                running -= 1
            elif isinstance(came, BaseException):
                raise came
            else:
                yield came
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
