"""A replica as its operators see it: the public API over TCP, the admin API over its socket.

The only module of the data plane that the control plane imports; it stays light.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from registry.errors import (
    CheckpointError,
    ConflictError,
    DatabaseError,
    InputError,
    IntegrityError,
    IronworksError,
    NotFoundError,
)
from registry.paths import StatePaths

SWAP_TIMEOUT_SECONDS = 1800.0
"""A swap loads, warms up and drains; large models take minutes."""

_ERRORS: dict[str, type[IronworksError]] = {
    kind.code: kind
    for kind in (
        CheckpointError,
        ConflictError,
        DatabaseError,
        InputError,
        IntegrityError,
        NotFoundError,
    )
}


class ReplicaUnreachableError(IronworksError):
    """Nothing answers at the replica's address or admin socket."""

    code = "replica_unreachable"


def admin_socket_path(state: Path, service: str) -> Path:
    """Where the replica ``service`` of a state folder listens for its operators."""
    return StatePaths(state).socket(f"{service}.admin")


class ReplicaClient:
    """Calls one replica; a context manager. Not for use from several threads at once.

    Args:
        base_url: of the public API, e.g. ``http://127.0.0.1:8000``.
        admin_socket: path of the admin socket; None refuses the admin calls.
        timeout: seconds that any call but :meth:`swap` and :meth:`drain` may take.
    """

    def __init__(
        self, base_url: str, admin_socket: Path | None = None, timeout: float = 60.0
    ) -> None:
        self._base_url = base_url
        self._socket = admin_socket
        self._public = httpx.Client(base_url=base_url, timeout=timeout, trust_env=False)
        self._admin: httpx.Client | None = None
        if admin_socket is not None:
            self._admin = httpx.Client(
                base_url="http://admin",
                transport=httpx.HTTPTransport(uds=str(admin_socket)),
                timeout=timeout,
                trust_env=False,
            )

    def __enter__(self) -> ReplicaClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._public.close()
        if self._admin is not None:
            self._admin.close()

    def livez(self) -> bool:
        """Whether the API process answers."""
        return self._is_ok("/livez")

    def readyz(self) -> bool:
        """Whether the replica accepts work."""
        return self._is_ok("/readyz")

    def progress(self) -> bool:
        """Whether running work moves: False when an engine stands still, or none answers."""
        return self._is_ok("/healthz/progress")

    def models(self) -> list[dict[str, Any]]:
        """The models it serves, as ``/v1/models`` gives them."""
        data: list[dict[str, Any]] = self._json(self._send("GET", "/v1/models"))["data"]
        return data

    def chat(
        self, model: str, messages: Sequence[Mapping[str, str]], **fields: Any
    ) -> tuple[dict[str, Any], str]:
        """One chat completion, not streamed: the body and the ``x-model-version`` header."""
        body = {"model": model, "messages": list(messages), **fields}
        response = self._send("POST", "/v1/chat/completions", json=body)
        return self._json(response), response.headers.get("x-model-version", "")

    def metrics(self) -> str:
        """The text that Prometheus would scrape."""
        return self._checked(self._send("GET", "/metrics")).text

    def status(self) -> dict[str, Any]:
        """What every model of the replica does now."""
        return self._json(self._admin_send("GET", "/status"))

    def memory(self) -> dict[str, Any]:
        """Bytes by process and device."""
        return self._json(self._admin_send("GET", "/debug/memory"))

    def swap(self, ref: str, timeout: float = SWAP_TIMEOUT_SECONDS) -> dict[str, Any]:
        """Serve the version ``ref``; returns its report once the old version is gone.

        Raises:
            IronworksError: of the class the replica raised; the old version goes on.
        """
        return self._json(self._admin_send("POST", "/swap", json={"version": ref}, timeout=timeout))

    def drain(self, seconds: float | None = None) -> int:
        """Stop taking requests and wait for the running ones; how many still run."""
        # A stopped process answers nothing: with a bound of its own, the call has one too.
        timeout = None if seconds is None else seconds + 2
        response = self._admin_send("POST", "/drain", json={"seconds": seconds}, timeout=timeout)
        return int(self._json(response)["still_running"])

    def sketches(self) -> dict[str, Any]:
        """What its traffic looked like, in counts: see ``serving.telemetry.sketches``."""
        return self._json(self._admin_send("GET", "/sketches"))

    def canary(
        self, model: str, prompts: Sequence[str], *, max_tokens: int, at_once: int, timeout: float
    ) -> dict[str, Any]:
        """Fixed prompts answered greedily with log probabilities; in no metric or sketch."""
        body = {
            "model": model,
            "prompts": list(prompts),
            "max_tokens": max_tokens,
            "at_once": at_once,
        }
        return self._json(self._admin_send("POST", "/canary", json=body, timeout=timeout))

    def _is_ok(self, path: str) -> bool:
        try:
            return self._public.get(path).is_success
        except httpx.TransportError:
            return False

    def _send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        return _request(self._public, self._base_url, method, path, arguments)

    def _admin_send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        if self._admin is None:
            raise InputError("the client was made without an admin socket")
        return _request(self._admin, str(self._socket), method, path, arguments)

    def _json(self, response: httpx.Response) -> dict[str, Any]:
        body: dict[str, Any] = self._checked(response).json()
        return body

    def _checked(self, response: httpx.Response) -> httpx.Response:
        if not response.is_success:
            raise _error(response)
        return response


def _request(
    client: httpx.Client, address: str, method: str, path: str, arguments: dict[str, Any]
) -> httpx.Response:
    try:
        return client.request(method, path, **arguments)
    except httpx.TransportError as error:
        raise ReplicaUnreachableError(
            f"the replica does not answer: {type(error).__name__}",
            where=f"{address}{path}",
            fix="`make status` shows what runs",
        ) from error


def _error(response: httpx.Response) -> IronworksError:
    """The replica's error body as the exception it was made from."""
    try:
        body = response.json()["error"]
        message, code = str(body["message"]), str(body.get("code") or "")
    except (ValueError, KeyError, TypeError):
        message, code, body = "the replica refused", "", {}
    error = _ERRORS.get(code, IronworksError)(
        str(body.get("what") or message),
        where=str(body.get("where") or f"{response.request.url.path}: {response.status_code}"),
        fix=str(body.get("fix") or ""),
    )
    if type(error) is IronworksError and code:
        error.code = code
    return error
