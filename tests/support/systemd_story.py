"""What is done inside the container: a replica's life under the real systemd, told as JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from lifecycle.fleet.supervisors.base import ReplicaSpec
from lifecycle.fleet.supervisors.systemd import SystemdSupervisor
from registry.paths import StatePaths
from serving.client import ReplicaClient, admin_socket_path

PORT = 8001
SERVICE = f"replica-{PORT}"


def main(state: Path, answer: Path) -> None:
    paths = StatePaths(state)
    supervisor = SystemdSupervisor(paths)
    env = {"IRONWORKS_THREADS": "1", "IRONWORKS_DEVICE": "cpu", "IRONWORKS_MAX_SLOTS": "2"}
    spec = ReplicaSpec(SERVICE, PORT, "tiny", env=env)
    told: dict[str, object] = {"before": supervisor.status(SERVICE).running}

    def save(**facts: object) -> None:
        told.update(facts)
        answer.write_text(json.dumps(told))

    supervisor.start(spec)
    url = f"http://127.0.0.1:{PORT}"
    with ReplicaClient(url, admin_socket_path(state, SERVICE)) as client:

        def await_ready() -> int:
            deadline = time.monotonic() + 90
            while not client.readyz():
                assert time.monotonic() < deadline, supervisor.logs(SERVICE, 20)
                time.sleep(0.1)
            pid = supervisor.status(SERVICE).pid
            assert pid is not None
            return pid

        first = await_ready()
        save(services=supervisor.services(), same=supervisor.start(spec).pid == first)
        os.kill(first, signal.SIGKILL)
        while supervisor.status(SERVICE).pid in (first, None):
            time.sleep(0.05)
        save(restarted=await_ready() != first)
        supervisor.drain(SERVICE)
        save(drained=client.livez() and not client.readyz())
    save(after=supervisor.stop(SERVICE).running, left=supervisor.services(), done=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
