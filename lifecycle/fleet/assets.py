"""Assets of the fleet: how it stands now, and how the scale decision does on made-up load."""

import base64
from collections.abc import Mapping
from typing import Any

from dagster import (
    AssetExecutionContext,
    AssetSpec,
    Config,
    MaterializeResult,
    MetadataValue,
    TableColumn,
    TableMetadataValue,
    TableRecord,
    TableSchema,
    asset,
)

from lifecycle.fleet.observe import FleetObservation
from lifecycle.fleet.scale_rule import ScaleRule
from lifecycle.fleet.scale_simulation.plot import plot
from lifecycle.fleet.scale_simulation.simulate import Outcome, policies, simulate
from lifecycle.fleet.scale_simulation.traces import TRACES
from registry.errors import ConflictError

GROUP = "fleet"

serving_fleet = AssetSpec(
    "serving_fleet",
    group_name=GROUP,
    kinds={"http"},
    description=(
        "The replicas as they are. Materialised by the sensor health_probes when something "
        "changes, and once a minute; the decisions of gpu_metrics are its observations."
    ),
)


class SimulationConfig(Config):
    """What ``autoscale_simulation`` runs."""

    seed: int = 1
    max_replicas: int = 12


@asset(group_name=GROUP, kinds={"python"})
def autoscale_simulation(
    context: AssetExecutionContext, config: SimulationConfig
) -> MaterializeResult[None]:
    """The production scale decision on five load traces, beside the article's rules.

    Fails if it flaps on any of them.
    """
    rule = ScaleRule(max_replicas=config.max_replicas)
    metadata: dict[str, Any] = {}
    rows: list[TableRecord] = []
    flaps = 0
    for name, trace in TRACES.items():
        context.log.info(f"trace {name}")
        outcomes = {
            policy: simulate(trace, decide, rule, seed=config.seed)
            for policy, decide in policies(rule).items()
        }
        mine = outcomes["ironworks"]
        flaps += mine.flaps
        rows += [_row(name, policy, outcome) for policy, outcome in outcomes.items()]
        picture = base64.b64encode(plot(trace, outcomes)).decode()
        metadata[f"plot_{name}"] = MetadataValue.md(f"![{name}](data:image/png;base64,{picture})")
        metadata[f"{name}_over_goal_percent"] = round(100 * mine.over_goal_share, 3)
        metadata[f"{name}_replica_hours"] = round(mine.replica_hours, 2)
    if flaps:
        raise ConflictError(
            f"the scale decision turned {flaps} changes round within five minutes",
            where=f"seed {config.seed}",
            fix="see lifecycle/fleet/autoscale.py; benchmarks/autoscale.py shows the traces",
        )
    return MaterializeResult(metadata={"flaps": flaps, "outcomes": _outcomes(rows), **metadata})


def fleet_metadata(seen: FleetObservation, notes: Mapping[str, str]) -> dict[str, Any]:
    """What a materialisation of ``serving_fleet`` shows."""
    records = [
        TableRecord(
            {
                "replica": service,
                "state": notes.get(service, ""),
                "pid": one.pid or 0,
                "version": ", ".join(f"{n}@{m.version}" for n, m in one.models.items()),
                "running": one.load.running,
                "waiting": one.load.waiting,
                "proxy": "" if one.proxy is None else one.proxy.rotation,
            }
        )
        for service, one in seen.replicas.items()
    ]
    columns = [
        TableColumn("replica", "string"),
        TableColumn("state", "string", "as the health sensor sees it"),
        TableColumn("pid", "int", "of the API process, 0 for none"),
        TableColumn("version", "string"),
        TableColumn("running", "int", "sequences in the batch"),
        TableColumn("waiting", "int", "sequences that wait for a slot"),
        TableColumn("proxy", "string", "what the proxy was told"),
    ]
    return {
        "replicas": MetadataValue.table(records, schema=TableSchema(columns=columns)),
        "ready": sum(one.ready for one in seen.replicas.values()),
        "declared": len(seen.replicas),
        "running": seen.running,
        "waiting": seen.waiting,
        "kv_usage": round(seen.kv_usage, 4),
        "proxy": "none" if not seen.proxied else seen.proxy_error or "answers",
        "look_seconds": round(seen.seconds, 3),
    }


def _row(trace: str, policy: str, outcome: Outcome) -> TableRecord:
    return TableRecord(
        {
            "trace": trace,
            "rule": policy,
            "changes": outcome.changes,
            "flaps": outcome.flaps,
            "over_goal_percent": round(100 * outcome.over_goal_share, 2),
            "late_percent": round(100 * outcome.late_share, 2),
            "refused_percent": round(100 * outcome.refused_share, 2),
            "replica_hours": round(outcome.replica_hours, 1),
        }
    )


def _outcomes(rows: list[TableRecord]) -> TableMetadataValue:
    return MetadataValue.table(
        rows,
        schema=TableSchema(
            columns=[
                TableColumn("trace", "string"),
                TableColumn("rule", "string"),
                TableColumn("changes", "int", "of the number of replicas"),
                TableColumn("flaps", "int", "changes turned round within five minutes"),
                TableColumn("over_goal_percent", "float", "of the time"),
                TableColumn("late_percent", "float", "of the answers: first token after the goal"),
                TableColumn("refused_percent", "float", "of the requests: everything was full"),
                TableColumn("replica_hours", "float"),
            ]
        ),
    )
