"""Reading the engine's frames from an asyncio stream."""

from __future__ import annotations

import asyncio

import msgspec

from serving.engine.framing import FramingError
from serving.engine.messages import MAX_FRAME_BYTES, FromEngine

_LENGTH_BYTES = 4
_decoder: msgspec.msgpack.Decoder[FromEngine] = msgspec.msgpack.Decoder(FromEngine)


async def read_message(reader: asyncio.StreamReader) -> FromEngine:
    """Read the next message of the engine.

    Raises:
        EOFError: the engine closed its end (asyncio's IncompleteReadError is one).
        FramingError: the frame is too long or its body is not a known message.
    """
    length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
    if length > MAX_FRAME_BYTES:
        raise FramingError(f"a frame of {length} bytes exceeds {MAX_FRAME_BYTES}")
    body = await reader.readexactly(length)
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise FramingError(str(error)) from error
