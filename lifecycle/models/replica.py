"""One replica of this state folder, as the assets and sensors deal with it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from lifecycle.fleet.processes import ProcessError
from lifecycle.fleet.rollout import Room
from lifecycle.fleet.supervisors.base import ReplicaSpec, ReplicaSupervisor
from lifecycle.models.rollout import Hosted, ReplicaView
from registry.errors import IronworksError, NotFoundError
from registry.paths import StatePaths
from registry.store import Version
from serving.client import ReplicaClient, admin_socket_path

PROBE_SECONDS = 2.0
"""Deadline of one look at a replica: a hung one must not hold up a sensor."""


@dataclass(frozen=True)
class ReplicaAddress:
    """Where a replica is, running or not."""

    service: str
    port: int
    host: str = "127.0.0.1"


@dataclass(frozen=True)
class Deployment:
    """What was done to make the replica serve a version."""

    step: Literal["start", "swap", "rolling", "none"]
    phases: Mapping[str, float]
    """Seconds by phase of the load, as the replica reports them."""
    seconds: float
    reason: str = ""
    """Why it was done in that way."""


@dataclass(frozen=True)
class Answer:
    """What came back over the public API."""

    text: str
    model_version: str
    """Header ``x-model-version``: the short digest of what answered."""


class ManagedReplica:
    """Looks at a replica, and makes it serve a version.

    Args:
        address: where it is.
        paths: the state folder.
        supervisor: starts it when it doesn't run.
        settings: what it is started with, beside its address.
    """

    def __init__(
        self,
        address: ReplicaAddress,
        paths: StatePaths,
        supervisor: ReplicaSupervisor,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.address = address
        self._paths = paths
        self._supervisor = supervisor
        self._settings = settings or {}

    def look(self) -> ReplicaView:
        """See what runs and what it serves, within ``PROBE_SECONDS``."""
        if not self._supervisor.status(self.address.service).running:
            return ReplicaView(running=False)
        try:
            with self._client(timeout=PROBE_SECONDS) as client:
                models = client.status()["models"]
        except IronworksError:
            return ReplicaView(running=True)
        return ReplicaView(
            running=True,
            models={
                model["name"]: Hosted(model["digest"], model["state"], model["swapping"])
                for model in models
            },
        )

    def room(self, model: str) -> Room:
        """What is free beside the present engine; unknown if it doesn't answer."""
        service = self.address.service
        try:
            with self._client(timeout=PROBE_SECONDS) as client:
                (card,) = [m for m in client.status()["models"] if m["name"] == model]
                memory = client.memory()
        except (IronworksError, ValueError):
            return Room(service, "", None, 0)
        free = memory["host"]["available_bytes"]
        for device in memory["devices"]:
            if device["device"] == card["device"]:
                free = device["total_bytes"] - device["used_bytes"]
        return Room(service, card["device"], free, card["kv_bytes"])

    def ask(self, model: str, prompt: str, *, max_tokens: int, timeout: float) -> Answer:
        """Send one greedy chat request through the public API; ``timeout`` in seconds."""
        with self._client(timeout=timeout) as client:
            body, model_version = client.chat(
                model,
                [{"role": "user", "content": prompt}],
                max_tokens=max_tokens,
                temperature=0,
            )
        return Answer(body["choices"][0]["message"]["content"] or "", model_version)

    def serve(
        self, version: Version, *, alias: str, deadline_seconds: float, say: Callable[[str], None]
    ) -> Deployment:
        """Make the replica serve ``version``: start it, swap, or do nothing.

        Args:
            version: what to serve under the name of its model.
            alias: the alias that a started replica follows.
            deadline_seconds: how long it may take.
            say: is told each step.

        Raises:
            ProcessError: the replica ended while it started, or took too long.
            IronworksError: the replica refused the version; it goes on with what it had.
        """
        started = time.monotonic()
        deadline = started + deadline_seconds
        step: Literal["start", "swap", "none"] = "none"
        phases: Mapping[str, float] = {}
        if not self.look().running:
            say(f"{self.address.service} does not run: starting it with {version.name}")
            self._start(version.model, alias)
            step = "start"
        hosted = self.await_loaded(version, deadline)
        if hosted.digest != version.digest or hosted.state != "ready":
            say(f"{self.address.service} serves another version: swapping to {version.name}")
            with self._client(timeout=PROBE_SECONDS) as client:
                report = client.swap(version.digest, timeout=max(1.0, deadline - time.monotonic()))
            phases = report["seconds"]
            step = "swap"
        return Deployment(step, phases, time.monotonic() - started)

    def _start(self, model: str, alias: str) -> None:
        self._supervisor.start(
            ReplicaSpec(
                service=self.address.service,
                port=self.address.port,
                host=self.address.host,
                model=model,
                alias=alias,
                env=self._settings,
            )
        )

    def await_loaded(self, version: Version, deadline: float) -> Hosted:
        """Wait until the replica is done with the load that it is at.

        Args:
            version: whose model it must serve, in whatever version.
            deadline: by the monotonic clock.

        Raises:
            ProcessError: it ended, or it took too long.
            NotFoundError: it serves other models only.
        """
        while time.monotonic() < deadline:
            view = self.look()
            if not view.running:
                raise self._not_up(f"{self.address.service} ended while it loaded {version.name}")
            if view.models and version.model not in view.models:
                raise NotFoundError(
                    f"{self.address.service} does not serve {version.model}",
                    where=f"it serves {', '.join(sorted(view.models))}",
                    fix=f"start a replica for it: IRONWORKS_MODEL={version.model} ironworks serve",
                )
            hosted = view.models.get(version.model)
            if hosted is not None and hosted.state != "loading" and not hosted.swapping:
                return hosted
            time.sleep(0.2)
        raise self._not_up(f"{self.address.service} was not ready with {version.name} in time")

    def _client(self, *, timeout: float) -> ReplicaClient:
        return ReplicaClient(
            f"http://{self.address.host}:{self.address.port}",
            admin_socket=admin_socket_path(self._paths.root, self.address.service),
            timeout=timeout,
        )

    def _not_up(self, what: str) -> ProcessError:
        last = " | ".join(self._supervisor.logs(self.address.service, lines=3))
        return ProcessError(what, where=last[:600], fix="read its log in var/log")
