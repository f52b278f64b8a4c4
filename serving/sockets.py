"""The two sockets a replica listens on, taken before anything is loaded.

A port in use must be known at once, not after minutes of loading; and an admin socket
that answers means that this service runs already.
"""

from __future__ import annotations

import errno
import socket
from pathlib import Path

from registry.errors import InputError

BACKLOG = 2048
_PROBE_SECONDS = 1.0


def bind_tcp(host: str, port: int) -> socket.socket:
    """Listen on ``host:port``.

    Raises:
        InputError: the port is in use or not allowed, or the host is not of this machine.
    """
    where = f"{host}:{port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise InputError("the host name is not known", where=where, fix="set --host") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # Two sockets that are only bound may share a port; listening settles who has it.
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _refusal(error, where) from error
    return listener


def bind_admin(path: Path) -> socket.socket:
    """Listen on a Unix socket of mode 0600, in place of one that a dead replica left.

    Raises:
        InputError: a live replica listens there.
    """
    if _answers(path):
        raise InputError(
            "a replica of this name runs already",
            where=str(path),
            fix="stop it first, or give this one another --service name",
        )
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(0o600)  # before listen(): nobody could connect until now
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _refusal(error, str(path)) from error
    return listener


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except TimeoutError:
            return True  # it listens, but is too busy to accept
        except OSError:
            return False
        return True


def _refusal(error: OSError, where: str) -> InputError:
    if error.errno == errno.EADDRINUSE:
        return InputError(
            "the address is in use by another process",
            where=where,
            fix="stop that process or choose another --port",
        )
    return InputError(
        f"can't listen: {error.strerror}", where=where, fix="choose another --host or --port"
    )
