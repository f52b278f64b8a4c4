"""Whether a TCP port is free, and if not, who has it."""

from __future__ import annotations

import socket

import psutil

from registry.errors import InputError


def require_free(host: str, port: int, *, setting: str) -> None:
    """Check that a server could listen on a port now.

    Args:
        host: address to listen on.
        port: TCP port.
        setting: what the user sets to choose another, for the error's advice.

    Raises:
        InputError: another process listens there, or the port may not be used.
    """
    with socket.socket() as probe:
        # As every server does, so that connections of the last run in TIME_WAIT don't count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            raise InputError(
                f"port {port} can't be used: {error.strerror}{_holder(port)}",
                where=f"{host}:{port}",
                fix=f"stop that process, or choose another port with {setting}",
            ) from error


def _holder(port: int) -> str:
    """Name of the process that listens on a port, as far as we may see it."""
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status != psutil.CONN_LISTEN or not connection.laddr:
                continue
            if connection.laddr.port == port and connection.pid is not None:
                return f" (held by pid {connection.pid}, {psutil.Process(connection.pid).name()})"
    except psutil.Error:
        pass
    return ""
