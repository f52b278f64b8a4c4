"""One whole product, from fresh state, for the story told in test_spine.py."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving.client import ReplicaClient, admin_socket_path
from tests.support.ports import free_port

MODEL = "smollm2-135m"


@dataclass
class Stack:
    """The product as a person uses it: by its command, its HTTP addresses and its files."""

    state: Path
    port: int
    dagster_port: int
    log: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def service(self) -> str:
        return f"replica-{self.port}"

    def ironworks(self, *arguments: str, timeout: float = 400) -> subprocess.CompletedProcess[str]:
        """Run one `ironworks` command in this state folder."""
        done = subprocess.run(
            [sys.executable, "-m", "ironworks", *arguments],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        with self.log.open("a") as log:
            log.write(f"$ ironworks {' '.join(arguments)}\n{done.stdout}{done.stderr}")
        return done

    def ok(self, *arguments: str) -> str:
        """The output of a command that must succeed."""
        done = self.ironworks(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *arguments: str) -> Any:
        """The same, as the JSON it prints."""
        return json.loads(self.ok(*arguments, "--json"))

    def json_whatever_its_status(self, *arguments: str) -> Any:
        """The JSON of a command whose exit status is part of its answer."""
        return json.loads(self.ironworks(*arguments, "--json").stdout)

    def up(self) -> str:
        return self.ok("up")

    def chat(self, prompt: str, max_tokens: int = 24, timeout: float = 60) -> httpx.Response:
        """One greedy chat request; returns the response whatever its status."""
        return httpx.post(
            f"{self.api}/v1/chat/completions",
            json={
                "model": MODEL,
                "messages": [{"role": "user", "content": prompt}],
                "temperature": 0,
                "max_tokens": max_tokens,
            },
            timeout=timeout,
        )

    def graphql(self, query: str, **variables: Any) -> Any:
        response = httpx.post(
            f"http://127.0.0.1:{self.dagster_port}/graphql",
            json={"query": query, "variables": variables},
            timeout=60,
        )
        body = response.raise_for_status().json()
        assert "errors" not in body, body["errors"]
        return body["data"]

    def replica(self) -> ReplicaClient:
        return ReplicaClient(self.api, admin_socket_path(self.state, self.service))

    def engine_pid(self) -> int:
        with self.replica() as replica:
            [model] = replica.status()["models"]
            return int(model["engine_pid"])

    def pids(self) -> dict[str, int]:
        """Name and pid of every process that `ironworks status` says runs."""
        return {
            process["name"]: process["pid"]
            for process in self.json("status")["processes"]
            if process["pid"]
        }

    def drop(self, source: Path, version: str) -> Path:
        """Copy a model into the drop folder as a person would: copy, then rename."""
        target = self.state / "intake" / MODEL / version
        partial = target.with_name(f".{version}.partial")
        shutil.copytree(source, partial)
        return partial.rename(target)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, demo_model_dir: Path) -> Iterator[Stack]:
    """The product, up; taken down afterwards, with its logs shown if a test failed."""
    folder = tmp_path_factory.mktemp("spine")
    state = folder / "var"
    # A download and a conversion less; everything after them is fresh.
    (state / "demo").mkdir(parents=True)
    shutil.copytree(demo_model_dir, state / "demo" / "model")
    ports = free_port(), free_port()
    stack = Stack(
        state=state,
        port=ports[0],
        dagster_port=ports[1],
        log=folder / "commands.log",
        environment={
            "IRONWORKS_STATE": str(state),
            "IRONWORKS_PORT": str(ports[0]),
            "IRONWORKS_DAGSTER_PORT": str(ports[1]),
        },
    )
    try:
        yield stack
    finally:
        stack.ironworks("down")
        print(stack.log.read_text()[-6000:])
