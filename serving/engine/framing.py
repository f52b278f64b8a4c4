"""Messages to bytes and back: length-prefixed msgpack frames over a stream.

Pure functions and a buffer, so that the asyncio side (API) and the blocking side (engine)
share them, and a test can feed them bytes one at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from serving.engine.messages import MAX_FRAME_BYTES, FromEngine, ToEngine

_LENGTH = struct.Struct(">I")
_encoder = msgspec.msgpack.Encoder()
_to_engine: msgspec.msgpack.Decoder[ToEngine] = msgspec.msgpack.Decoder(ToEngine)


class FramingError(Exception):
    """The peer broke the framing or sent a message that is none: close the connection."""


def encode_frame(message: ToEngine | FromEngine) -> bytes:
    """One message as a frame: 4 bytes big-endian length, then msgpack.

    Raises:
        FramingError: the message is longer than ``MAX_FRAME_BYTES``.
    """
    payload = _encoder.encode(message)
    if len(payload) > MAX_FRAME_BYTES:
        raise FramingError(f"a message of {len(payload)} bytes exceeds {MAX_FRAME_BYTES}")
    return _LENGTH.pack(len(payload)) + payload


def decode_to_engine(payload: bytes) -> ToEngine:
    """A message from the API.

    Raises:
        FramingError: not msgpack, an unknown tag, or a field of the wrong type.
    """
    try:
        return _to_engine.decode(payload)
    except msgspec.DecodeError as error:
        raise FramingError(str(error)) from error


class FrameBuffer:
    """Collects received bytes and gives out whole frames' payloads."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add received bytes; yield the payload of each frame that is now complete.

        Raises:
            FramingError: a length above ``MAX_FRAME_BYTES``; raised before anything is
                allocated for it.
        """
        self._data += data
        while len(self._data) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._data)
            if length > MAX_FRAME_BYTES:
                raise FramingError(f"a frame of {length} bytes exceeds {MAX_FRAME_BYTES}")
            end = _LENGTH.size + length
            if len(self._data) < end:
                return
            payload = bytes(self._data[_LENGTH.size : end])
            del self._data[:end]
            yield payload
