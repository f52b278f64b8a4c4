"""The engine's end of the socket: blocking sends, polled receives."""

from __future__ import annotations

import select
import socket
from pathlib import Path

import msgspec

from serving.engine.framing import FrameBuffer, FramingError, decode_to_engine, encode_frame
from serving.engine.messages import FromEngine, RequestFailed, ToEngine

_RECEIVE_BYTES = 256 * 1024


class PeerGone(Exception):
    """The API closed the connection or died: nobody is left to serve."""


class Channel:
    """Messages over one connected stream socket. Used from one thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = FrameBuffer()

    @classmethod
    def connect(cls, path: Path) -> Channel:
        """Connect to the API's listening Unix socket.

        Raises:
            OSError: nobody listens there.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(str(path))
        return cls(connection)

    def send(self, message: FromEngine) -> None:
        """Send one message; blocks while the API is slow to read.

        Raises:
            PeerGone: the other end is closed.
        """
        try:
            self._socket.sendall(encode_frame(message))
        except OSError as error:
            raise PeerGone(str(error)) from error

    def receive(self, timeout: float) -> list[ToEngine]:
        """All messages that have arrived; waits up to ``timeout`` seconds for the first.

        A request that is no valid message but names itself is answered with
        ``RequestFailed`` here, so that whoever waits for it is told and the others go on.

        Raises:
            PeerGone: the other end is closed.
            FramingError: bytes that can't be attributed to any request.
        """
        messages: list[ToEngine] = []
        while select.select([self._socket], [], [], 0 if messages else timeout)[0]:
            try:
                data = self._socket.recv(_RECEIVE_BYTES)
            except OSError as error:
                raise PeerGone(str(error)) from error
            if not data:
                raise PeerGone("end of stream")
            whole = False
            for payload in self._buffer.feed(data):
                whole = True
                try:
                    messages.append(decode_to_engine(payload))
                except FramingError as error:
                    self._refuse(payload, error)
            if whole and not messages:
                break
        return messages

    def _refuse(self, payload: bytes, error: FramingError) -> None:
        try:
            fields = msgspec.msgpack.decode(payload)
        except msgspec.DecodeError:
            raise error from None
        request_id = fields.get("request_id") if isinstance(fields, dict) else None
        if not isinstance(request_id, str):
            raise error
        self.send(RequestFailed(request_id=request_id, what=str(error), code="invalid_request"))
