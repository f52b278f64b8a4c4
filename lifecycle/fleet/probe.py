"""One look at one replica over HTTP: every question at once, none waits for another."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from lifecycle.fleet.scrape import ReplicaLoad, parse_load


@dataclass(frozen=True)
class HostedModel:
    """One model of a replica, as the replica tells it.

    Attributes:
        digest: of the version that it serves, or tries to bring up.
        version: that version's name within the model.
        state: ``loading``, ``ready``, ``restarting`` or ``stopped``.
        swapping: whether another version is being loaded to replace it.
        restarts: how often its engine had to be brought back.
        engine_pid: of the current engine, 0 while there is none or it is on another host.
    """

    digest: str
    version: str
    state: str
    swapping: bool = False
    restarts: int = 0
    engine_pid: int = 0


@dataclass(frozen=True)
class Probe:
    """What a replica answered.

    Attributes:
        live: its API process answers.
        ready: it takes work.
        reason: why it does not, "" if it does.
        progressing: False if work runs and no step ends; None if it can't tell.
        draining: it was told to drain.
        models: by name; empty while it starts.
        load: how busy it is, None when unknown.
        error: why it could not be asked, "" if it could.
    """

    live: bool = False
    ready: bool = False
    reason: str = ""
    progressing: bool | None = None
    draining: bool = False
    models: Mapping[str, HostedModel] = field(default_factory=dict)
    load: ReplicaLoad | None = None
    error: str = ""


async def probe(base_url: str, admin_socket: Path | None, timeout: float) -> Probe:
    """Ask a replica; never raises and never takes longer than ``timeout`` seconds.

    Args:
        base_url: of its public API.
        admin_socket: of a replica on this host; tells more of its models.
        timeout: for everything together.
    """
    # No proxy of the environment, and no certificates to load: both cost milliseconds.
    async with httpx.AsyncClient(
        base_url=base_url, timeout=timeout, trust_env=False, verify=False
    ) as public:
        live, ready, progress, models, metrics, status = await asyncio.gather(
            _get(public, "/livez", timeout),
            _get(public, "/readyz", timeout),
            _get(public, "/healthz/progress", timeout),
            _get(public, "/v1/models", timeout),
            _get(public, "/metrics", timeout),
            _status(admin_socket, timeout),
        )
    if isinstance(live, str):
        return Probe(reason="does not answer", error=live)
    told = status if status is not None else {}
    return Probe(
        live=live.is_success,
        ready=not isinstance(ready, str) and ready.is_success,
        reason=_reason(ready),
        progressing=_progressing(progress),
        draining=bool(told.get("draining", False)),
        models=_hosted(told["models"]) if "models" in told else _listed(models),
        load=_load(metrics),
    )


async def _get(client: httpx.AsyncClient, path: str, timeout: float) -> httpx.Response | str:
    """The response, or why there is none."""
    try:
        async with asyncio.timeout(timeout):
            return await client.get(path)
    except (TimeoutError, httpx.TimeoutException):
        return f"no answer within {timeout:g} s"
    except httpx.HTTPError as error:
        return str(error) or type(error).__name__


async def _status(socket: Path | None, timeout: float) -> dict[str, Any] | None:
    if socket is None or not socket.exists():
        return None
    transport = httpx.AsyncHTTPTransport(uds=str(socket))
    async with httpx.AsyncClient(
        base_url="http://admin", transport=transport, timeout=timeout, trust_env=False
    ) as admin:
        response = await _get(admin, "/status", timeout)
    value = _json(response)
    return value if isinstance(value, dict) and isinstance(value.get("models"), list) else None


def _json(response: httpx.Response | str) -> Any:
    if isinstance(response, str) or not response.is_success:
        return None
    try:
        return response.json()
    except ValueError:
        return None


def _reason(response: httpx.Response | str) -> str:
    """Why ``/readyz`` says no, in the replica's own words."""
    if isinstance(response, str):
        return response
    if response.is_success:
        return ""
    try:
        return str(response.json()["error"]["message"])[:200]
    except (ValueError, KeyError, TypeError):
        return f"HTTP {response.status_code}"


def _progressing(response: httpx.Response | str) -> bool | None:
    if isinstance(response, str) or response.status_code not in (200, 503):
        return None
    return response.is_success


def _hosted(models: list[dict[str, Any]]) -> dict[str, HostedModel]:
    return {
        str(model["name"]): HostedModel(
            digest=str(model["digest"]),
            version=str(model["version"]),
            state=str(model["state"]),
            swapping=bool(model["swapping"]),
            restarts=int(model["restarts"]),
            engine_pid=int(model["engine_pid"]),
        )
        for model in models
    }


def _listed(response: httpx.Response | str) -> dict[str, HostedModel]:
    value = _json(response)
    models = value.get("data", []) if isinstance(value, dict) else []
    return {
        str(model["id"]): HostedModel(
            str(model["digest"]), str(model["version"]), str(model["state"])
        )
        for model in models
    }


def _load(response: httpx.Response | str) -> ReplicaLoad | None:
    if isinstance(response, str) or not response.is_success:
        return None
    try:
        return parse_load(response.text)
    except ValueError:
        return None
