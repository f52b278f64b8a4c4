"""``drift_report`` and ``canary_report``: what traffic and answers are like, against then.

numpy, scipy and matplotlib are imported when an asset runs: every Dagster run is a fresh
process that imports the code location, and most runs need none of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from dagster import (
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetExecutionContext,
    AssetSelection,
    Config,
    MaterializeResult,
    asset,
    define_asset_job,
    in_process_executor,
)

from lifecycle.drift import canary
from lifecycle.drift.collect import Target, ask_all, targets
from lifecycle.models.failures import plain_failures
from lifecycle.models.provenance import actor_of
from lifecycle.models.resources import StateFolder
from registry.errors import ConflictError
from registry.store import Registry

GROUP = "drift"
AT_ONCE = 4
"""Canary prompts under way at a time: the rest of the batch belongs to the users."""
ANSWER_SECONDS = 120.0
"""How long a replica may take for all canary prompts."""


class DriftConfig(Config):
    """Sizes of ``drift_report``; see ``lifecycle.drift.verdict.Rule``."""

    judged_requests: int = 200
    reference_requests: int = 1000


@asset(
    group_name=GROUP, kinds={"http"}, check_specs=[AssetCheckSpec("no_drift", asset="drift_report")]
)
def drift_report(
    context: AssetExecutionContext,
    config: DriftConfig,
    state: StateFolder,
) -> Iterator[MaterializeResult[None]]:
    """Every stream of requests against the reference that was frozen with its version."""
    from lifecycle.drift.presentation import drift_metadata
    from lifecycle.drift.report import report
    from lifecycle.drift.verdict import Rule

    rule = Rule(
        judged_requests=config.judged_requests, reference_requests=config.reference_requests
    )
    with plain_failures(), state.registry() as registry:
        answers = ask_all(targets(registry), lambda t: _sketches(t, state))
        shown = [answer.value for answer in answers if not answer.problem]
        signals, streams = report(registry, shown, rule, actor_of(context.run))
    alarms = [one for one in streams if one.verdict.outcome == "alarm"]
    silent = {a.target.service: a.problem for a in answers if a.problem}
    yield MaterializeResult(
        metadata=drift_metadata(signals, streams, silent),
        check_results=[
            AssetCheckResult(
                check_name="no_drift",
                passed=not alarms,
                severity=AssetCheckSeverity.WARN,
                description="; ".join(f"{one.key.route}: {one.verdict.reason}" for one in alarms),
            )
        ],
    )


@asset(
    group_name=GROUP,
    kinds={"http"},
    check_specs=[AssetCheckSpec("answers_unchanged", asset="canary_report")],
)
def canary_report(
    context: AssetExecutionContext, state: StateFolder
) -> Iterator[MaterializeResult[None]]:
    """Fixed prompts, answered greedily by every replica, against the answers of then.

    The first report after a version is deployed freezes its answers.
    """
    from lifecycle.drift.presentation import canary_metadata

    with plain_failures(), state.registry() as registry:
        asked = targets(registry)
        answers = ask_all(asked, lambda target: _ask(target, state))
        actor = actor_of(context.run)
        verdicts = [
            (
                answer.target.service,
                judge_canary(
                    registry,
                    answer.target.service,
                    one,
                    partial(_again, answer.target, state, model),
                    actor,
                ),
            )
            for answer in answers
            for model, one in (answer.value or {}).items()
        ]
    alarms = [f"{service}: {v.reason}" for service, v in verdicts if v.outcome == "alarm"]
    silent = {a.target.service: a.problem for a in answers if a.problem}
    yield MaterializeResult(
        metadata=canary_metadata(verdicts, silent),
        check_results=[
            AssetCheckResult(
                check_name="answers_unchanged",
                passed=not alarms,
                severity=AssetCheckSeverity.ERROR,
                description="; ".join(alarms),
            )
        ],
    )


def judge_canary(
    registry: Registry,
    service: str,
    answer: dict[str, Any],
    again: Callable[[int], dict[str, Any]],
    actor: str,
) -> canary.CanaryVerdict:
    """Compare one replica's answers with its version's; freeze them if they are the first.

    Args:
        registry: keeps reference and verdict.
        service: the replica.
        answer: of ``ReplicaClient.canary``.
        again: asks again, so many prompts at once: a new reference is calibrated with it.
        actor: for the log.
    """
    digest = answer["digest"]
    kind = f"{canary.KIND}:{answer['device'].partition(':')[0]}"
    facts = _facts(registry, answer)
    kept = registry.references.get(digest, kind)
    frozen = kept is None
    if kept is None:
        body = canary.reference_body(answer, facts, [again(size) for size in canary.CROWDS])
        kept = registry.references.freeze(digest, kind, body, actor=actor)
    verdict = canary.compare(kept.body, answer, facts)
    if frozen:
        verdict = replace(verdict, outcome="frozen", reason="the first answers of this version")
    registry.record(
        "canary.verdict",
        digest,
        {
            "service": service,
            "outcome": verdict.outcome,
            "reason": verdict.reason,
            "mean_moved_micronats": round(verdict.mean_moved * 1e6),
            "changed": list(verdict.facts_changed),
            "answers": [
                {"state": result.state, "sha256": result.sha256} for result in verdict.results
            ],
        },
        actor=actor,
    )
    return verdict


def _facts(registry: Registry, answer: dict[str, Any]) -> dict[str, str]:
    """What besides the weights decides an answer's numbers."""
    facts = {"device": answer["device"], "dtype": answer["dtype"]}
    if answer["load_id"] is not None:
        who = registry.loads.get(answer["load_id"]).identity
        facts |= {
            "host": who.host,
            "engine": who.engine_version,
            "torch": who.torch_version,
            "transformers": who.transformers_version,
        }
    return facts


def _sketches(target: Target, state: StateFolder) -> dict[str, Any]:
    with target.client(state.paths) as client:
        return client.sketches()


def _ask(target: Target, state: StateFolder) -> dict[str, dict[str, Any]]:
    """Answers by model."""
    with target.client(state.paths) as client:
        names = [model["name"] for model in client.status()["models"] if model["state"] == "ready"]
    if not names:
        raise ConflictError("the replica has no ready model", where=target.service)
    return {name: _again(target, state, name, AT_ONCE) for name in names}


def _again(target: Target, state: StateFolder, model: str, at_once: int) -> dict[str, Any]:
    with target.client(state.paths) as client:
        return client.canary(
            model,
            canary.PROMPTS,
            max_tokens=canary.MAX_TOKENS,
            at_once=at_once,
            timeout=ANSWER_SECONDS,
        )


watch_drift = define_asset_job(
    "watch_drift",
    selection=AssetSelection.assets(drift_report),
    description="Compare what traffic looks like with what it looked like at deployment.",
    executor_def=in_process_executor,
    run_tags={"dagster/max_runtime": 900, "ironworks/kind": "drift"},
)

ask_canary = define_asset_job(
    "ask_canary",
    selection=AssetSelection.assets(canary_report),
    description="Ask every replica the canary prompts.",
    executor_def=in_process_executor,
    run_tags={"dagster/max_runtime": 600, "ironworks/kind": "canary"},
)

DRIFT_ASSETS = [drift_report, canary_report]
DRIFT_JOBS = [watch_drift, ask_canary]
