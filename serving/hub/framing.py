"""Frames of ``serving.engine.messages`` on asyncio streams: the API's end of the socket."""

from __future__ import annotations

import asyncio

import msgspec

from serving.engine.messages import MAX_FRAME_BYTES, FromEngine, ToEngine

_LENGTH_BYTES = 4
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[FromEngine] = msgspec.msgpack.Decoder(FromEngine)


class ProtocolError(Exception):
    """The engine sent something that is not a message; the connection is of no more use."""


def encode_frame(message: ToEngine) -> bytes:
    """One message as length prefix and msgpack body."""
    body = _encoder.encode(message)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


async def read_message(reader: asyncio.StreamReader) -> FromEngine:
    """Read the next message of the engine.

    Raises:
        EOFError: the engine closed its end (asyncio's IncompleteReadError is one).
        ProtocolError: the frame is too long or its body is not a known message.
    """
    size = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
    if size > MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame of {size} bytes, more than {MAX_FRAME_BYTES}")
    body = await reader.readexactly(size)
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"not a message: {error}") from error
