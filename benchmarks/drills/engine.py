"""The engine process dies under load, with no control plane: the replica heals itself."""

from __future__ import annotations

import os
import signal
import time

from benchmarks.drills.clients import clients
from benchmarks.drills.world import MODEL, World, wait_for


def kill_engine(world: World, *, count: int = 4) -> dict[str, object]:
    """``kill -9`` the engine of one replica while clients stream.

    Returns:
        ``serving_again_seconds`` from the kill to the first token that a client got of a
        whole answer to a request that was sent after it.
    """
    with (
        world.replica() as port,
        clients(f"http://127.0.0.1:{port}", MODEL, count=count, max_tokens=64) as load,
    ):
        before, seq = world.engine_pid(port), world.last_seq()
        killed = time.monotonic()
        os.kill(before, signal.SIGKILL)
        # What is answered before the kill has reached the engine proves nothing.
        wait_for("new engine", lambda: world.engine_pid(port) not in (0, before))
        load.await_answers(count, after=killed)
        again = load.first_token(after=killed)
        phases = world.load_seconds(port)
        load.stop()
        outcome = load.outcome()
        later = [r for r in load.requests() if r.ok and r.sent >= again]
        return {
            "serving_again_seconds": round(again - killed, 2),
            "load_seconds": phases,
            "requests": outcome.total,
            "refused": outcome.refused,
            "broken_in_flight": outcome.broken,
            "answered_later": len(later),
            "versions": len(outcome.versions),
            "events": world.kinds_after(seq),
        }
