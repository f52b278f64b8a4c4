"""A fleet of real replicas with a tiny model behind a real HAProxy, and clients of it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

from lifecycle.fleet.layout import FleetLayout
from lifecycle.fleet.managed import ManagedFleet
from lifecycle.fleet.supervisors.local import LocalSupervisor
from registry.paths import StatePaths
from tests.support.ports import free_port

SMALL = {"IRONWORKS_THREADS": "1", "IRONWORKS_DEVICE": "cpu", "IRONWORKS_MAX_SLOTS": "4"}
"""For the environment: what keeps a tiny replica small."""


def free_ports_in_a_row(count: int) -> int:
    """The first of ``count`` ports that were all free a moment ago."""
    import socket

    while True:
        first = free_port()
        if first + count > 65535:
            continue
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first


def make_fleet(paths: StatePaths, replicas: int = 2) -> ManagedFleet:
    """A fleet on free ports, nothing of it declared or started."""
    layout = FleetLayout(port=free_ports_in_a_row(replicas + 2), replicas=replicas)
    return ManagedFleet(paths, layout, LocalSupervisor(paths))


def end_fleet(fleet: ManagedFleet) -> None:
    """Kill whatever runs of it."""
    for service in fleet.supervisor.services():
        fleet.supervisor.stop(service, grace_seconds=5)
    if fleet.proxy is not None:
        fleet.proxy.stop()


@dataclass
class Outcome:
    """What clients saw.

    Attributes:
        answers: streams that ended as they should.
        failures: what went wrong, in words.
        versions: answers by ``x-model-version``.
    """

    answers: int = 0
    failures: list[str] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)


class Clients:
    """Clients that stream one chat after another until they are told to stop."""

    def __init__(self, url: str, model: str, *, max_tokens: int) -> None:
        self.outcome = Outcome()
        self._url = url
        self._model = model
        self._max_tokens = max_tokens
        self._stop = threading.Event()
        self._lock = threading.Lock()

    @contextmanager
    def running(self, count: int) -> Iterator[Outcome]:
        """Run ``count`` of them while the block runs; all streams have ended after it."""
        threads = [threading.Thread(target=self._work, args=(n,)) for n in range(count)]
        for thread in threads:
            thread.start()
        try:
            yield self.outcome
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(timeout=120)

    def await_answers(self, more: int, seconds: float = 60) -> None:
        """Wait until that many further streams have ended."""
        goal, deadline = self.outcome.answers + more, time.monotonic() + seconds
        while self.outcome.answers < goal and not self.outcome.failures:
            assert time.monotonic() < deadline, "the clients get no answers"
            time.sleep(0.02)

    def _work(self, number: int) -> None:
        with httpx.Client(timeout=60, trust_env=False) as client:
            turn = 0
            while not self._stop.is_set():
                turn += 1
                try:
                    version = self._stream(client, f"client {number}, turn {turn}")
                except Exception as error:
                    with self._lock:
                        self.outcome.failures.append(f"{type(error).__name__}: {error}")
                    continue
                with self._lock:
                    self.outcome.answers += 1
                    self.outcome.versions[version] = self.outcome.versions.get(version, 0) + 1

    def _stream(self, client: httpx.Client, text: str) -> str:
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": self._max_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
        }
        reason = None
        with client.stream("POST", f"{self._url}/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                raise AssertionError(f"{response.status_code} {response.read()[:200]!r}")
            lines = [line for line in response.iter_lines() if line.startswith("data: ")]
            version = response.headers["x-model-version"]
        if lines[-1] != "data: [DONE]":
            raise AssertionError(f"the stream ended with {lines[-1][:100]}")
        for line in lines[:-1]:
            for choice in json.loads(line.removeprefix("data: ")).get("choices", []):
                reason = choice["finish_reason"] or reason
        if reason != "length":
            raise AssertionError(f"the stream was cut: {reason}")
        return str(version)
