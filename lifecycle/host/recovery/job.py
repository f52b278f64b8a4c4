"""``recover_host``: the ladder as a Dagster job, each rung an op with its evidence."""

import socket
from typing import Any

from dagster import (
    Config,
    Failure,
    JobDefinition,
    OpDefinition,
    OpExecutionContext,
    Out,
    in_process_executor,
    job,
    op,
)

from lifecycle.fleet.layout import FleetLayout
from lifecycle.fleet.managed import ManagedFleet
from lifecycle.fleet.supervisors.choice import choose_supervisor
from lifecycle.host.recovery import ladder, record, report
from lifecycle.host.recovery.climb import Climb, Site, Verdict
from lifecycle.host.recovery.ladder import RUNGS, Rung
from lifecycle.host.recovery.replicas import HostReplicas
from lifecycle.host.resources import HostResource
from lifecycle.models.resources import StateFolder
from registry.errors import IronworksError

JOB = "recover_host"
HOST_TAG = "ironworks/host"
"""One recovery or scale run per host at a time; its value is the host's name."""

_MINUTE = 60


class RungConfig(Config):
    """What may be asked of a rung."""

    fault_at: float = 0.0
    """For confirm_fault: seconds since 1970 when the fault was first seen; 0: now."""
    ignore_limit: bool = False
    """For confirm_fault: climb although two attempts within 30 minutes did not help."""
    allow: bool = False
    """For reset_pci: try it; its outcome is not promised by the vendor."""
    ready_seconds: float = 120.0
    """For start_replicas: how long they may take to be ready."""


def _site(context: OpExecutionContext, config: RungConfig) -> Site:
    state: StateFolder = context.resources.state
    machine: HostResource = context.resources.machine
    return Site(
        host=machine.host(),
        paths=state.paths,
        replicas=HostReplicas(
            ManagedFleet(
                state.paths, FleetLayout.from_environment(), choose_supervisor(state.paths)
            ),
            hosts=("127.0.0.1", "localhost", machine.name),
        ),
        say=context.log.info,
        pci_reset=config.allow,
        ignore_limit=config.ignore_limit,
        ready_seconds=config.ready_seconds,
    )


def _take(context: OpExecutionContext, config: RungConfig, rung: Rung, climb: Climb) -> Any:
    climb = ladder.step(_site(context, config), rung, climb)
    outcome = climb.outcomes[-1]
    context.add_output_metadata(
        {
            "did": outcome.did,
            "evidence": outcome.evidence,
            "verdict": climb.verdict.value,
            "seconds": outcome.seconds,
            "deadline_seconds": outcome.deadline,
        }
    )
    return climb.as_json()


def _first(rung: Rung) -> OpDefinition:
    @op(
        name=rung.name,
        description=rung.action.__doc__,
        required_resource_keys=_RESOURCES,
        out=_MEMORY,
    )
    def take(context: OpExecutionContext, config: RungConfig) -> dict[str, Any]:
        site = _site(context, config)
        climb = Climb(context.run_id, config.fault_at or site.host.clock.time())
        return _take(context, config, rung, climb)  # type: ignore[no-any-return]

    return take


def _next(rung: Rung) -> OpDefinition:
    @op(
        name=rung.name,
        description=rung.action.__doc__,
        required_resource_keys=_RESOURCES,
        out=_MEMORY,
    )
    def take(
        context: OpExecutionContext, config: RungConfig, climb: dict[str, Any]
    ) -> dict[str, Any]:
        return _take(context, config, rung, Climb.from_json(climb))  # type: ignore[no-any-return]

    return take


_RESOURCES = {"state", "machine"}
# A climb is never resumed in its middle: a new run looks again from the first rung.
_MEMORY = Out(io_manager_key="memory")
_OPS = [_first(RUNGS[0]), *map(_next, RUNGS[1:])]


@op(required_resource_keys=_RESOURCES)
def conclude(context: OpExecutionContext, config: RungConfig, climb: dict[str, Any]) -> None:
    """Write down how it ended; fails the run unless the host serves again."""
    site = _site(context, config)
    ended = ladder.end(site, Climb.from_json(climb))
    drained = record.load(site.paths).drained
    name = context.resources.machine.name
    try:
        with context.resources.state.registry() as registry:
            report.record_climb(registry, name, ended, drained)
    except IronworksError as error:
        context.log.error(f"the audit log could not be told: {error}")
    context.add_output_metadata(
        {
            "verdict": ended.verdict.value,
            "reason": ended.reason,
            **_seconds("driver_recovered_seconds", ended.driver_recovered_seconds),
            **_seconds("serving_again_seconds", ended.serving_again_seconds),
        }
    )
    if ended.verdict is not Verdict.SERVING:
        text = report.message(name, ended, drained)
        raise Failure(text if ended.verdict is Verdict.GIVEN_UP else ended.reason)


def _seconds(name: str, value: float | None) -> dict[str, float]:
    return {} if value is None else {name: round(value, 3)}


def _build() -> JobDefinition:
    @job(
        name=JOB,
        description="Bring a host with a broken GPU driver back: the ladder, rung by rung.",
        executor_def=in_process_executor,
        tags={
            "dagster/max_runtime": 10 * _MINUTE,
            # Before scaling (5) and reloading (0).
            "dagster/priority": "10",
            "ironworks/kind": "recovery",
            # Also for a run that a person launches; this location runs on the host itself.
            HOST_TAG: socket.gethostname(),
        },
    )
    def recover_host() -> None:
        climb = _OPS[0]()
        for take in _OPS[1:]:
            climb = take(climb)
        conclude(climb)

    return recover_host


recover_host = _build()
