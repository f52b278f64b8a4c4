"""The last asset: the replicas answer with this version."""

import hashlib
import time
from typing import Literal

from dagster import AssetExecutionContext, Config, DataVersion, MaterializeResult, asset

from lifecycle.models import metadata as show
from lifecycle.models.assets import GROUP, PRODUCTION, promoted_version
from lifecycle.models.failures import plain_failures
from lifecycle.models.partitions import MODEL_VERSION, VersionKey
from lifecycle.models.provenance import actor_of
from lifecycle.models.resources import ReplicaResource, StateFolder
from lifecycle.models.service import ServedModels
from registry.errors import ConflictError, NotFoundError
from registry.store import Registry, Version


class DeploymentConfig(Config):
    """How ``deployed_version`` makes the replicas serve the version."""

    alias: str = PRODUCTION
    """Only the version that this alias names may be deployed."""
    deadline_seconds: float = 900.0
    """For the start or the swap, loading included."""
    prompt: str = "What is the capital of France?"
    """Asked through the public API afterwards; the answer is shown."""
    max_tokens: int = 32
    answer_seconds: float = 120.0
    """How long that answer may take."""
    rollout: Literal["auto", "swap", "rolling"] = "auto"
    """How replicas that serve another version are changed; ``auto``: by what is free."""


@asset(partitions_def=MODEL_VERSION, group_name=GROUP, deps=[promoted_version], kinds={"http"})
def deployed_version(
    context: AssetExecutionContext,
    config: DeploymentConfig,
    state: StateFolder,
    replica: ReplicaResource,
) -> MaterializeResult[None]:
    """The version that every replica serves, proven by an answer over HTTP.

    Starts replicas that don't run, changes those that serve another version without a
    failed request (the plan says how and why), and refuses any version but the one that
    the production alias names.
    """
    with plain_failures():
        with state.registry() as registry:
            version = _aliased(registry, VersionKey.parse(context.partition_key), config.alias)
        models = ServedModels(replica.fleet(state.paths))
        deployment = models.serve(
            version,
            alias=config.alias,
            actor=actor_of(context.run),
            deadline_seconds=config.deadline_seconds,
            wish=config.rollout,
            say=context.log.info,
        )
        asked = time.monotonic()
        answer = models.ask(
            version.model,
            config.prompt,
            max_tokens=config.max_tokens,
            timeout=config.answer_seconds,
        )
        answer_seconds = time.monotonic() - asked
        if answer.model_version != version.short:
            raise ConflictError(
                f"{answer.model_version} has answered, not {version.short}",
                where=models.name,
                fix="another run may have moved it; materialise deployed_version again",
            )
    return MaterializeResult(
        data_version=DataVersion(version.digest),
        metadata={
            "service": models.name,
            "address": f"http://{replica.host}:{replica.port}/v1",
            "digest": version.digest,
            "x-model-version": answer.model_version,
            "did": deployment.step,
            "why": deployment.reason or "every replica served it already",
            "replicas": show.changes_table(
                (change.service, change.step, change.seconds) for change in models.changes
            ),
            "answer": show.conversation(config.prompt, answer.text),
            "answer_sha256": hashlib.sha256(answer.text.encode()).hexdigest(),
            "seconds": round(deployment.seconds, 3),
            **{f"{phase}_seconds": round(t, 3) for phase, t in deployment.phases.items()},
            "answer_seconds": round(answer_seconds, 3),
        },
    )


def _aliased(registry: Registry, key: VersionKey, name: str) -> Version:
    """Return the version of ``key`` if the alias names it, else say what it names."""
    version = registry.version(str(key))
    alias = registry.alias(key.model, name)
    if alias is None:
        raise NotFoundError(
            f"{key.model} has no {name} version",
            where=str(key),
            fix="materialise promoted_version first",
        )
    if alias.digest != version.digest:
        current = registry.version(alias.digest)
        raise ConflictError(
            f"{name} of {key.model} is {current.name}, not {key}",
            where=str(key),
            fix="deploy that one, or move the alias: ironworks registry promote or rollback",
        )
    return version
