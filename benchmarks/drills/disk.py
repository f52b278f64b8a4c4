"""The registry's disk fills up while replicas serve.

Run by itself as ``python -m benchmarks.drills.disk STATE CHECKPOINT``: it mounts a small
file system over the registry, which needs a mount namespace of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.drills.clients import clients
from benchmarks.drills.world import MODEL, World, make_world, wait_for
from registry.errors import IronworksError
from registry.store import Registry

# Beside the files themselves: the database, its journal, and views.
_ROOM_BYTES = 24 * 2**20


def absent() -> str:
    """Why this drill can't run on this machine, "" if it can."""
    if shutil.which("unshare") is None:
        return "no unshare"
    done = subprocess.run([*_namespace(), "true"], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"no mount namespace: {done.stderr.strip()[:200]}"


def full_disk(folder: Path, source: Path) -> dict[str, object]:
    """Run this module in a mount namespace; what it found.

    Raises:
        RuntimeError: it failed; the message holds the end of what it printed.
    """
    done = subprocess.run(
        [*_namespace(), sys.executable, "-m", __name__, str(folder), str(source)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the drill failed:\n{done.stderr[-3000:]}")
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def _namespace() -> list[str]:
    return ["unshare", *([] if os.geteuid() == 0 else ["-r"]), "-m", "--propagation", "private"]


def _drill(folder: Path, source: Path) -> dict[str, object]:
    registry_folder = folder / "state" / "registry"
    registry_folder.mkdir(parents=True)
    size = 2 * sum(path.stat().st_size for path in source.iterdir()) + _ROOM_BYTES
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(registry_folder)]
    subprocess.run(mount, check=True)
    world = make_world(folder, source)
    second = world.add("v2")
    for gate in ("integrity", "safe_files", "config_sanity", "loads_and_answers"):
        with world.registry() as registry:
            registry.record_gate(
                second.digest, gate=gate, outcome="pass", numbers={}, actor="drill", run_id="drill"
            )
    with world.replica() as port, clients(f"http://127.0.0.1:{port}", MODEL, count=2) as load:
        seq = world.last_seq()
        ballast = registry_folder / "ballast"
        _fill(ballast)
        refusals = {
            "promote": _refusal(lambda: _promote(world)),
            "swap": _refusal(lambda: _swap(world, port)),
        }
        answered = len(load.requests())
        # Requests need no write: the service goes on.
        wait_for("answers while the disk is full", lambda: len(load.requests()) > answered + 4)
        events_while_full = world.kinds_after(seq)
        ballast.unlink()
        _promote(world)
        _swap(world, port)
        wait_for("an answer of v2", lambda: second.digest[:12] in load.outcome().versions)
        load.stop()
        outcome = load.outcome()
    with Registry.open(world.paths.registry) as registry:
        verified = registry.audit.verify()
    return {
        "requests": outcome.total,
        "failed_requests": outcome.refused + outcome.broken,
        "failures": outcome.failures,
        "refusals": refusals,
        "events_while_full": events_while_full,
        "events_after": world.kinds_after(seq),
        "log_is_whole": verified.ok,
    }


def _fill(path: Path) -> None:
    """Take every free block, and then every free byte of what is left."""
    with path.open("wb", buffering=0) as stream:
        for size in (2**20, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    stream.write(bytes(size))


def _promote(world: World) -> None:
    with world.registry() as registry:
        registry.promote(f"{MODEL}@v2", alias="production", actor="drill", reason="a drill")


def _swap(world: World, port: int) -> None:
    with world.client(port) as client:
        client.swap(f"{MODEL}@v2", timeout=120)


def _refusal(act: Callable[[], None]) -> str:
    """The error of something that must not succeed, "" if it did."""
    try:
        act()
    except IronworksError as error:
        return f"{error.code}: {error}"
    return ""


if __name__ == "__main__":
    print(json.dumps(_drill(Path(sys.argv[1]), Path(sys.argv[2]))))
