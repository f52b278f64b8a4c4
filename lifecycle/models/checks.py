"""The gates as blocking checks of ``registered_version``.

They run on the registry's view, that is on the stored bytes that a replica would load, and
each outcome is recorded in the registry, bound to the version's digest: promotion reads it
there. What Dagster shows is a mirror.
"""

import time
import warnings
from collections.abc import Callable

from dagster import (
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetChecksDefinition,
    Config,
    PreviewWarning,
    asset_check,
)

from lifecycle.gates import config_sanity, integrity, loads_and_answers, safe_files
from lifecycle.gates.outcome import GateOutcome
from lifecycle.models import metadata as show
from lifecycle.models.assets import registered_version
from lifecycle.models.failures import plain_failures
from lifecycle.models.partitions import MODEL_VERSION, VersionKey
from lifecycle.models.progress import log_progress
from lifecycle.models.provenance import actor_of
from lifecycle.models.resources import StateFolder
from registry.progress import Progress
from registry.store import Registry, Version

Gate = Callable[[Registry, Version, Progress], GateOutcome]


def gate_check(name: str, description: str, gate: Gate) -> AssetChecksDefinition:
    """Make the blocking check that runs ``gate`` on the version of its partition."""

    def check(context: AssetCheckExecutionContext, state: StateFolder) -> AssetCheckResult:
        return _run(context, state, name, gate)

    return _blocking_check(name, description)(check)


def _blocking_check(
    name: str, description: str
) -> Callable[[Callable[..., AssetCheckResult]], AssetChecksDefinition]:
    def decorate(function: Callable[..., AssetCheckResult]) -> AssetChecksDefinition:
        with warnings.catch_warnings():
            # Partitioned checks are in preview; every dagster package is pinned to one release.
            warnings.simplefilter("ignore", PreviewWarning)
            return asset_check(
                asset=registered_version,
                name=name,
                description=description,
                blocking=True,
                partitions_def=MODEL_VERSION,
            )(function)

    return decorate


def _run(
    context: AssetCheckExecutionContext, state: StateFolder, name: str, gate: Gate
) -> AssetCheckResult:
    started = time.monotonic()
    with plain_failures(), state.registry() as registry:
        version = registry.version(str(VersionKey.parse(context.partition_key)))
        outcome = gate(registry, version, log_progress(context.log))
        registry.record_gate(
            version.digest,
            gate=name,
            outcome=outcome.verdict,
            numbers=outcome.numbers,
            actor=actor_of(context.run),
            run_id=context.run.run_id,
        )
    return AssetCheckResult(
        passed=outcome.passed,
        description=outcome.summary,
        metadata={
            "outcome": outcome.verdict,
            "digest": version.digest,
            **outcome.numbers,
            **({"findings": show.findings_list(outcome)} if outcome.findings else {}),
            **({"answer": show.conversation(*outcome.sample)} if outcome.sample else {}),
            "seconds": round(time.monotonic() - started, 3),
        },
    )


integrity_check = gate_check(
    integrity.NAME,
    "Every stored file still has the digest that was registered.",
    integrity.evaluate,
)

safe_files_check = gate_check(
    safe_files.NAME,
    "No file can run code, and every tensor header is sound.",
    lambda registry, version, _: safe_files.evaluate(registry.view(version.digest)),
)

config_sanity_check = gate_check(
    config_sanity.NAME,
    "Configuration, tokenizer and tensors belong together.",
    lambda registry, version, _: config_sanity.evaluate(registry.view(version.digest)),
)


class QuestionConfig(Config):
    """What ``loads_and_answers`` asks the model, and how long it waits."""

    prompt: str = loads_and_answers.Question.prompt
    max_tokens: int = loads_and_answers.Question.max_tokens
    deadline_seconds: float = loads_and_answers.Question.deadline_seconds


@_blocking_check(
    loads_and_answers.NAME,
    "It loads in a limited process and gives the same greedy answer twice.",
)
def loads_and_answers_check(
    context: AssetCheckExecutionContext, config: QuestionConfig, state: StateFolder
) -> AssetCheckResult:
    """Ask the version a question in a process of its own."""
    question = loads_and_answers.Question(config.prompt, config.max_tokens, config.deadline_seconds)
    return _run(
        context,
        state,
        loads_and_answers.NAME,
        lambda registry, version, _: loads_and_answers.evaluate(
            registry.view(version.digest), question
        ),
    )


GATE_CHECKS = [integrity_check, safe_files_check, config_sanity_check, loads_and_answers_check]
