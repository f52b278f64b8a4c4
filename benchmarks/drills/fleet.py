"""A replica dies, hangs, is updated, or is recovered by a daemon that dies in the middle."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict

from benchmarks.drills.clients import Clients, clients
from benchmarks.drills.stack import Stack
from benchmarks.drills.world import MODEL, wait_for
from lifecycle.stack.services import DAEMON
from registry.fleet import DesiredReplica

RECOVER_JOB = "recover_replica"


def kill_replica(stack: Stack, *, count: int = 8) -> dict[str, object]:
    """``kill -9`` the API process of one replica while clients stream through HAProxy."""
    victim, healthy = _split(stack)
    began, seq = time.time(), stack.world.last_seq()
    with clients(stack.url, MODEL, count=count, max_tokens=48) as load:
        killed = stack.kill(victim.service)
        wait_for("notice", lambda: not stack.in_rotation(victim.service))
        back = stack.await_rotation([victim.service])
        load.await_answers(count, after=back)
    return {
        "serving_again_seconds": round(back - killed, 2),
        **_seen(stack, load, healthy),
        "recovery_runs": len(stack.runs(RECOVER_JOB, after=began)),
        "starts": _count(stack, "load.started", seq),
        "recovery_events": [event.kind for event in stack.events("recovery.", seq)],
    }


def stop_engine(stack: Stack, *, count: int = 8) -> dict[str, object]:
    """SIGSTOP the engine of one replica: alive, ready, and without progress."""
    victim, healthy = _split(stack)
    began, seq = time.time(), stack.world.last_seq()
    engine = stack.world.engine_pid(victim.port)
    with clients(stack.url, MODEL, count=count, max_tokens=48) as load:
        stopped = time.monotonic()
        os.kill(engine, signal.SIGSTOP)
        try:
            noticed = wait_for(
                "recovery run", lambda: stack.runs(RECOVER_JOB, after=began) and time.monotonic()
            )
            wait_for("replica out of rotation", lambda: not stack.in_rotation(victim.service))
            back = stack.await_rotation([victim.service])
        finally:
            with suppress(ProcessLookupError):
                os.kill(engine, signal.SIGKILL)
        load.await_answers(count, after=back)
    return {
        "noticed_seconds": round(noticed - stopped, 2),
        "serving_again_seconds": round(back - stopped, 2),
        **_seen(stack, load, healthy),
        "recovery_runs": len(stack.runs(RECOVER_JOB, after=began)),
        "starts": _count(stack, "load.started", seq),
    }


def rolling_update(stack: Stack, version: str, *, count: int = 16) -> dict[str, object]:
    """Promote another version under streaming clients; none of their requests may fail."""
    new = stack.world.add(version)
    with clients(stack.url, MODEL, count=count, max_tokens=48) as load:
        promoted = time.monotonic()
        stack.world.promote(version)
        wait_for(f"replicas with {version}", lambda: _all_serve(stack, new.digest), 300)
        served = time.monotonic()
        load.await_answers(count, after=served)
    outcome = load.outcome()
    return {
        "updated_seconds": round(served - promoted, 2),
        **_seen(stack, load, stack.desired()),
        "failed": outcome.refused + outcome.broken,
        "new_version_answers": outcome.versions.get(new.short, 0),
        "old_version_answers": sum(outcome.versions.values()) - outcome.versions.get(new.short, 0),
    }


def kill_daemon_in_recovery(stack: Stack, *, count: int = 4) -> dict[str, object]:
    """Kill Dagster's daemon once a recovery is under way, and start it again.

    The tick that asked for the recovery resumes, and so do the run queue and run monitoring;
    none of them may start the replica a second time.
    """
    victim, healthy = _split(stack)
    began, seq = time.time(), stack.world.last_seq()
    with clients(stack.url, MODEL, count=count, max_tokens=48) as load:
        killed = stack.kill(victim.service)
        wait_for("recovery run", lambda: stack.runs(RECOVER_JOB, after=began))
        stack.kill(DAEMON)
        stack.restart_daemon()
        wait_for("notice", lambda: not stack.in_rotation(victim.service))
        back = stack.await_rotation([victim.service])
        # Two more looks of the health sensor: time to do something twice.
        time.sleep(25)
        load.await_answers(count, after=back)
    runs = stack.runs(RECOVER_JOB, after=began)
    return {
        "serving_again_seconds": round(back - killed, 2),
        **_seen(stack, load, healthy),
        "recovery_runs": len(runs),
        "run_keys": len({run.dagster_run.tags.get("dagster/run_key", "") for run in runs}),
        "starts": _count(stack, "load.started", seq),
        "statuses": [run.dagster_run.status.value for run in runs],
    }


def _split(stack: Stack) -> tuple[DesiredReplica, list[DesiredReplica]]:
    """One replica to break, and the others."""
    replicas = [replica for replica in stack.desired() if replica.state == "running"]
    stack.await_rotation([replica.service for replica in replicas])
    return replicas[0], replicas[1:]


def _seen(stack: Stack, load: Clients, healthy: Sequence[DesiredReplica]) -> dict[str, object]:
    outcome = asdict(load.outcome([stack.world.log(replica.port) for replica in healthy]))
    return {name: outcome[name] for name in _SHOWN}


_SHOWN = ("total", "refused", "broken", "failed_at_healthy", "failures")


def _count(stack: Stack, kind: str, seq: int) -> int:
    return len(stack.events(kind, seq))


def _all_serve(stack: Stack, digest: str) -> bool:
    for replica in stack.desired():
        with stack.world.client(replica.port, timeout=2.0) as client:
            models = client.status()["models"]
        if not all(m["digest"] == digest and m["state"] == "ready" for m in models):
            return False
    return True
