"""The jobs that act on replicas: recover one, change how many there are, drain a host.

Each looks again before it acts, so that a run that comes late, twice or after a crash in the
middle finds nothing left to do. Operations start fast: one process, no step processes.
"""

from typing import Any

from dagster import Config, Failure, In, OpExecutionContext, Out, in_process_executor, job, op
from pydantic import Field

from lifecycle.fleet import recover, scale_run
from lifecycle.fleet.in_flight import RECOVERY_PRIORITY, recovery_waits
from lifecycle.fleet.managed import ManagedFleet
from lifecycle.host import pci
from lifecycle.host.resources import HostResource
from lifecycle.models.failures import plain_failures
from lifecycle.models.resources import ReplicaResource, StateFolder

_MINUTE = 60
_RESOURCES = {"state", "replica", "machine"}
_MEMORY = Out(io_manager_key="memory")


class RecoverConfig(Config):
    """Which replica to recover, and why."""

    service: str
    """Its name, or ``proxy``."""
    fault: str = ""
    """As the sensor saw it; without it, a replica that was stopped on purpose stays so."""
    fault_at: float = 0.0
    """Unix seconds at which it was first seen; 0: now."""
    ready_seconds: float = 180.0
    """How long it may take until it serves again."""
    dry_run: bool = False
    """Look and tell, change nothing."""


@op(required_resource_keys=_RESOURCES, out=_MEMORY)
def confirm_replica_fault(context: OpExecutionContext, config: RecoverConfig) -> dict[str, Any]:
    """Look again: what was seen some seconds ago may be over."""
    with plain_failures():
        case = recover.confirm(
            _fleet(context),
            recover.Request(
                config.service, config.fault, config.fault_at, config.ready_seconds, context.run_id
            ),
        )
    context.log.info(f"{case.service}: {case.fault or 'no fault'}: {case.note}")
    context.add_output_metadata({"fault": case.fault, "seen": case.note})
    if config.dry_run and case.fault:
        case = case.dry()
    return case.as_json()


@op(required_resource_keys=_RESOURCES, ins={"case": In(dict)}, out=_MEMORY)
def repair_replica(context: OpExecutionContext, case: dict[str, Any]) -> dict[str, Any]:
    """End what hangs: the engine alone if that is enough, else the replica."""
    with plain_failures():
        done = recover.repair_case(_fleet(context), recover.Case.from_json(case))
    context.log.info(done.did)
    context.add_output_metadata({"did": done.did})
    return done.as_json()


@op(required_resource_keys=_RESOURCES, ins={"case": In(dict)})
def prove_replica_serves(context: OpExecutionContext, case: dict[str, Any]) -> None:
    """Start it, wait until it takes work and is in rotation, and write that down."""
    with plain_failures():
        proof = recover.prove(_fleet(context), recover.Case.from_json(case), say=context.log.info)
    context.add_output_metadata(proof)


@job(
    description="Bring one broken replica, or the proxy, back: confirm, repair, prove.",
    executor_def=in_process_executor,
    tags={
        "dagster/max_runtime": 10 * _MINUTE,
        "dagster/priority": RECOVERY_PRIORITY,
        "ironworks/kind": "recovery",
    },
)
def recover_replica() -> None:
    """Bring one broken replica back."""
    prove_replica_serves(repair_replica(confirm_replica_fault()))


class ScaleConfig(Config):
    """How many replicas there should be, and why."""

    target: int
    """In all; asked for twice it changes nothing more."""
    reason: str = "asked for by a person"
    inputs: dict[str, Any] = Field(default_factory=dict)
    """What the decision was made from, for the record."""
    deadline_seconds: float = 300.0
    drain_seconds: float = 120.0
    """How long requests of a replica that goes may take, before its own drain at SIGTERM."""
    dry_run: bool = False


@op(required_resource_keys=_RESOURCES)
def scale_fleet(context: OpExecutionContext, config: ScaleConfig) -> None:
    """Declare as many replicas as there should be, and make it so."""
    with plain_failures():
        done = scale_run.scale(
            _fleet(context),
            scale_run.ScaleRequest(
                config.target,
                config.reason,
                config.inputs,
                config.deadline_seconds,
                config.drain_seconds,
                config.dry_run,
            ),
            devices=len(pci.gpus(context.resources.machine.host())) or None,
            give_way=lambda: recovery_waits(context.instance),
            say=context.log.info,
        )
    context.add_output_metadata(done)


@job(
    description="Change the number of replicas; a new one gets requests once it has warmed up.",
    executor_def=in_process_executor,
    tags={
        "dagster/max_runtime": 15 * _MINUTE,
        "dagster/priority": "5",
        "ironworks/kind": "scale",
    },
)
def scale_replicas() -> None:
    """Change the number of replicas."""
    scale_fleet()


class DrainConfig(Config):
    """Which host to take out of rotation, or back."""

    host: str = ""
    """Name or address; empty: the host that this runs on."""
    reason: str = "asked for by a person"
    undo: bool = False
    """Put its drained replicas back into rotation instead."""
    seconds: float = 300.0
    """How long requests may take to end."""
    dry_run: bool = False


@op(required_resource_keys=_RESOURCES)
def take_host_out(context: OpExecutionContext, config: DrainConfig) -> None:
    """Declare every replica of the host drained, and wait until its requests have ended."""
    machine: HostResource = context.resources.machine
    fleet = _fleet(context)
    own = {"127.0.0.1", "localhost", machine.name, fleet.layout.host}
    hosts = own if config.host in ("", *own) else {config.host}
    with plain_failures():
        done = scale_run.drain(
            fleet,
            hosts,
            undo=config.undo,
            reason=config.reason,
            seconds=config.seconds,
            dry_run=config.dry_run,
            say=context.log.info,
        )
    context.add_output_metadata(done)
    if done["pending"]:
        raise Failure(f"not drained within {config.seconds:.0f} s: {done['pending']}")


@job(
    description="Take every replica of a host out of rotation (or back, with undo).",
    executor_def=in_process_executor,
    tags={
        "dagster/max_runtime": 15 * _MINUTE,
        "dagster/priority": RECOVERY_PRIORITY,
        "ironworks/kind": "drain",
    },
)
def drain_host() -> None:
    """Take every replica of a host out of rotation."""
    take_host_out()


def _fleet(context: OpExecutionContext) -> ManagedFleet:
    state: StateFolder = context.resources.state
    replica: ReplicaResource = context.resources.replica
    return replica.fleet(state.paths)
