"""The two sensors of the fleet: thin wrappers round pure decisions.

The cursor holds what a decision remembers. Every tick's reason, also for doing nothing, is
the tick's own text; what changes is written to the asset ``serving_fleet``.
"""

import json
import time
from dataclasses import asdict
from typing import Any

from dagster import (
    AssetMaterialization,
    AssetObservation,
    DefaultSensorStatus,
    MetadataValue,
    RunConfig,
    RunRequest,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    sensor,
)

from lifecycle.fleet import autoscale, health, in_flight, recovery
from lifecycle.fleet.assets import fleet_metadata, serving_fleet
from lifecycle.fleet.in_flight import HOST_TAG, SERVICE_TAG
from lifecycle.fleet.jobs import RecoverConfig, ScaleConfig, recover_replica, scale_replicas
from lifecycle.fleet.live_state import Shown
from lifecycle.fleet.scaling import ScaleSettings, dry_run, leftovers, load_of
from lifecycle.host import gpus, pci
from lifecycle.host.recovery import record
from lifecycle.host.recovery.decision import HostDecision, HostWatchState
from lifecycle.host.recovery.job import recover_host
from lifecycle.host.recovery.sensing import consider, run_config
from lifecycle.host.resources import HostResource
from lifecycle.models.resources import ReplicaResource, StateFolder
from registry.errors import IronworksError

# The sensor daemon looks every 5 s, so 29 fires every 30 s and 4 every 5 s. The article probes
# every 10 s; from a death to the start of its recovery that would be 15 s by itself.
_THIRTY_SECONDS = 29
_FIVE_SECONDS = 4


@sensor(
    jobs=[recover_replica, recover_host],
    minimum_interval_seconds=_FIVE_SECONDS,
    default_status=DefaultSensorStatus.RUNNING,
)
def health_probes(
    context: SensorEvaluationContext,
    state: StateFolder,
    replica: ReplicaResource,
    machine: HostResource,
) -> SensorResult | SkipReason:
    """Recover replicas that died, hang or stand still, and a host whose GPUs are broken."""
    if not state.paths.registry.is_dir():
        return SkipReason("there is no registry yet")
    cursor = _cursor(context)
    now = time.time()
    runs = in_flight.look(context.instance)
    seen, sights = health.look(replica.fleet(state.paths))
    services = [sight.service for sight in sights]
    decision = recovery.decide(
        sights,
        recovery.watches_from_json(cursor.get("watches", {})),
        services if runs.whole_fleet else runs.services,
        now,
        reloading=in_flight.RELOAD in runs.jobs,
    )
    host = _host(machine, state, cursor.get("host"), busy=in_flight.RECOVER_HOST in runs.jobs)
    _tell_given_up(context, state, decision)
    notes = dict(decision.notes) if host is None else {**decision.notes, "host": host.reason}
    text = "; ".join(f"{name}: {note}" for name, note in notes.items()) or "nothing is declared"
    shown = Shown.from_json(cursor.get("shown", {}))
    due = bool(services) and shown.is_due(text, now)
    requests = [] if dry_run() else _recoveries(decision, machine.name) + _host_run(host, machine)
    return SensorResult(
        run_requests=requests,
        skip_reason=None if requests else text,
        asset_events=[
            AssetMaterialization(
                serving_fleet.key,
                metadata={**fleet_metadata(seen, notes), "dry_run": dry_run(), "notes": text},
            )
        ]
        if due
        else [],
        cursor=json.dumps(
            {
                "watches": {name: asdict(watch) for name, watch in decision.watches.items()},
                "host": None if host is None else host.state.as_json(),
                "shown": asdict(Shown(text, now) if due else shown),
            }
        ),
    )


@sensor(
    job=scale_replicas,
    minimum_interval_seconds=_THIRTY_SECONDS,
    default_status=DefaultSensorStatus.RUNNING,
)
def gpu_metrics(
    context: SensorEvaluationContext,
    state: StateFolder,
    replica: ReplicaResource,
    machine: HostResource,
) -> SensorResult | SkipReason:
    """Start scale_replicas when the load has wanted another number of replicas for long."""
    if not state.paths.registry.is_dir():
        return SkipReason("there is no registry yet")
    cursor = _cursor(context)
    now = time.time()
    fleet = replica.fleet(state.paths)
    settings = ScaleSettings.from_environment(fleet.layout)
    desired = fleet.desired()
    seen = fleet.observe()
    before = tuple((float(b), float(n)) for b, n in cursor.get("ttft", ()))
    load = load_of(desired, seen, gpus.read(machine.host()), before)
    runs = in_flight.look(context.instance)
    if runs.recovering or runs.whole_fleet:
        load = autoscale.blind(load, f"{runs.whole_fleet or 'a recovery'} is under way")
    remembered = autoscale.state_from_json(cursor.get("scale", {}))
    decision = autoscale.decide(load, remembered, now, settings.rule)
    acts = decision.changes and settings.acts
    reason = text = decision.reason
    if decision.changes:
        would = "" if acts else f"; not done: {settings.why_not}"
        text = f"{load.replicas} → {decision.target} replicas: {decision.reason}{would}"
    left = [] if runs.recovering or runs.whole_fleet else leftovers(desired, seen)
    # Seen at two looks: who has just changed the desired state is given time to act on it.
    if left and left == cursor.get("left") and not acts and not dry_run():
        acts, reason = True, f"left over: {'; '.join(left)}"[:500]
        text = f"{text}; {reason}"
    shown = Shown.from_json(cursor.get("shown", {}))
    due = bool(desired) and (decision.changes or shown.is_due(text, now))
    request = RunRequest(
        run_key=f"scale:{int(now)}:{decision.state.serial}",
        tags={HOST_TAG: machine.name},
        run_config=RunConfig(
            ops={
                "scale_fleet": ScaleConfig(
                    target=decision.target if reason == decision.reason else load.replicas,
                    reason=reason,
                    inputs={name: str(value) for name, value in decision.inputs.items()},
                )
            }
        ),
    )
    return SensorResult(
        run_requests=[request] if acts else [],
        skip_reason=None if acts else text,
        asset_events=[
            AssetObservation(serving_fleet.key, metadata=_decision_metadata(decision, text))
        ]
        if due
        else [],
        cursor=json.dumps(
            {
                "scale": asdict(decision.state),
                "ttft": seen.ttft,
                "left": left,
                "shown": asdict(Shown(text, now) if due else shown),
            }
        ),
    )


def _recoveries(decision: recovery.RecoveryDecision, host: str) -> list[RunRequest]:
    return [
        RunRequest(
            job_name=recover_replica.name,
            run_key=one.run_key,
            tags={HOST_TAG: host, SERVICE_TAG: one.service},
            run_config=RunConfig(
                ops={
                    "confirm_replica_fault": RecoverConfig(
                        service=one.service, fault=one.fault.value, fault_at=one.since
                    )
                }
            ),
        )
        for one in decision.recoveries
    ]


def _host(
    machine: HostResource, state: StateFolder, remembered: Any, *, busy: bool
) -> HostDecision | None:
    """What to do about this host's GPUs; None where it has none, which costs next to nothing."""
    host = machine.host()
    if not pci.gpus(host) and not record.load(state.paths).drained:
        return None
    try:
        before = HostWatchState(**(remembered or {}))
    except TypeError:
        before = HostWatchState()
    return consider(machine.name, host, state.paths, before, busy=busy)


def _host_run(host: HostDecision | None, machine: HostResource) -> list[RunRequest]:
    if host is None or host.action == "nothing":
        return []
    return [
        RunRequest(
            job_name=recover_host.name,
            run_key=host.run_key,
            tags={HOST_TAG: machine.name},
            run_config=run_config(host),
        )
    ]


def _tell_given_up(
    context: SensorEvaluationContext, state: StateFolder, decision: recovery.RecoveryDecision
) -> None:
    """One event and one alert when a replica's attempts are used up."""
    for service, reason in decision.given_up.items():
        context.log.error(f"{service}: {reason}")
        try:
            with state.registry() as registry:
                body = {"reason": reason[:500]}
                registry.record(
                    "recovery.replica_given_up", service, body, actor=health_probes.name
                )
                registry.record("alert.replica", service, body, actor=health_probes.name)
        except IronworksError as error:
            context.log.error(f"the audit log could not be told: {error}")


def _decision_metadata(decision: autoscale.ScaleDecision, text: str) -> dict[str, Any]:
    numbers = {
        name: value
        for name, value in decision.inputs.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    return {
        "decision": text,
        "target": decision.target,
        "inputs": MetadataValue.json(dict(decision.inputs)),
        **{f"load_{name}": value for name, value in numbers.items()},
    }


def _cursor(context: SensorEvaluationContext) -> dict[str, Any]:
    """What the last tick left; what can't be read is forgotten rather than fatal."""
    try:
        value = json.loads(context.cursor or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
