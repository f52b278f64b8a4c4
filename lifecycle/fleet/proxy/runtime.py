"""HAProxy's runtime socket (management guide, "Unix Socket commands")."""

from __future__ import annotations

import csv
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from lifecycle.fleet.proxy.base import ProxyError, ProxyServer, Rotation
from lifecycle.fleet.proxy.config import BACKEND, CHECK

# srv_admin_state in "show servers state": forced, inherited, or by name resolution. Bit 0x04
# only tells that the configuration began with it.
_MAINTENANCE = 0x01 | 0x02 | 0x20
_DRAIN = 0x08 | 0x10
# srv_op_state: stopped, starting, running, stopping.
_UP = ("2", "3")


class HAProxyClient:
    """The `ProxyClient` of one HAProxy.

    Args:
        path: of its socket.
        timeout: seconds for one command.
    """

    def __init__(self, path: Path, timeout: float = 2.0) -> None:
        self._path = path
        self._timeout = timeout

    def servers(self) -> Mapping[str, ProxyServer]:
        """The replicas it knows, by service."""
        # A version number, the column names behind a "#", then the rows.
        _, names, *rows = self._ask(f"show servers state {BACKEND}").splitlines()
        columns = names.removeprefix("# ").split()
        states = [dict(zip(columns, row.split(), strict=False)) for row in rows if row.strip()]
        stats = self._stats()
        return {
            state["srv_name"]: _server(state, stats.get(state["srv_name"], {})) for state in states
        }

    def add(self, service: str, host: str, port: int, weight: int) -> None:
        """Make a replica known, out of rotation; no-op if it is known."""
        if service in self.servers():
            return
        name = f"{BACKEND}/{service}"
        answer = self._ask(f"add server {name} {host}:{port} check {CHECK} weight {weight}")
        if "registered" not in answer:
            raise self._refused(answer)
        # A server that is added while HAProxy runs comes with its checks switched off.
        self._command(f"enable health {name}")

    def remove(self, service: str) -> None:
        """Forget a replica that is out of rotation; no-op if it is unknown."""
        if service not in self.servers():
            return
        self._command(f"set server {BACKEND}/{service} state maint")
        # A connection that has just been closed keeps the server for a moment.
        deadline = time.monotonic() + self._timeout
        while "deleted" not in (answer := self._ask(f"del server {BACKEND}/{service}")):
            if time.monotonic() > deadline:
                raise self._refused(answer)
            time.sleep(0.05)

    def ready(self, service: str, *, weight: int) -> None:
        """Send requests to it as long as its health check passes."""
        self._command(f"set server {BACKEND}/{service} weight {weight}")
        self._command(f"set server {BACKEND}/{service} state ready")

    def drain(self, service: str) -> None:
        """Send no new requests to it; those under way end."""
        self._command(f"set server {BACKEND}/{service} state drain")

    def sessions(self, service: str) -> int:
        """Requests that it works on now; 0 if it is unknown."""
        return _sessions(self._stats().get(service, {}))

    def _stats(self) -> dict[str, dict[str, str]]:
        """Rows of "show stat" by server: type 4 are servers."""
        text = self._ask(f"show stat {BACKEND} 4 -1").removeprefix("# ")
        rows = csv.DictReader(line for line in text.splitlines() if line)
        return {row["svname"]: dict(row) for row in rows}

    def _command(self, command: str) -> None:
        """Send a command that answers nothing when it is obeyed."""
        answer = self._ask(command).strip()
        if answer:
            raise self._refused(answer)

    def _ask(self, command: str) -> str:
        parts: list[bytes] = []
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(self._timeout)
                connection.connect(str(self._path))
                connection.sendall(f"{command}\n".encode())
                connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(1 << 16):
                    parts.append(part)
        except OSError as error:
            raise ProxyError(
                f"HAProxy does not answer: {error}",
                where=str(self._path),
                fix="`make status` shows whether it runs; its log is haproxy.log",
            ) from error
        return b"".join(parts).decode()

    def _refused(self, answer: str) -> ProxyError:
        return ProxyError(f"HAProxy refuses: {answer.strip()[:300]}", where=str(self._path))


def _server(state: Mapping[str, str], stats: Mapping[str, str]) -> ProxyServer:
    return ProxyServer(
        service=state["srv_name"],
        host=state["srv_addr"],
        port=int(state["srv_port"]),
        rotation=_rotation(int(state["srv_admin_state"])),
        up=state["srv_op_state"] in _UP,
        weight=int(state["srv_uweight"]),
        sessions=_sessions(stats),
        failed_checks=int(stats.get("chkfail") or 0),
        reason=f"{stats.get('check_status', '')} {stats.get('last_chk', '')}".strip(),
    )


def _rotation(admin: int) -> Rotation:
    if admin & _MAINTENANCE:
        return "maint"
    return "drain" if admin & _DRAIN else "ready"


def _sessions(stats: Mapping[str, str]) -> int:
    return int(stats.get("scur") or 0) + int(stats.get("qcur") or 0)
