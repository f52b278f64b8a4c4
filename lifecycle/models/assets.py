"""The way of one model version: artifact → manifest → registered → promoted.

The registry is the source of truth and Dagster mirrors it: every asset can be
materialised again without changing anything, and every refusal is the registry's own.
``deployed_version`` is in ``deployment.py``.
"""

import time

from dagster import (
    AssetExecutionContext,
    Config,
    DataVersion,
    MaterializeResult,
    asset,
)

from lifecycle.models import metadata as show
from lifecycle.models.failures import plain_failures
from lifecycle.models.handover import directory_of, read_manifest, write_manifest
from lifecycle.models.partitions import MODEL_VERSION, VersionKey
from lifecycle.models.progress import log_progress
from lifecycle.models.provenance import actor_of
from lifecycle.models.resources import StateFolder
from registry.checkpoint_files import check_checkpoint, is_complete
from registry.errors import CheckpointError

GROUP = "models"
PRODUCTION = "production"


@asset(partitions_def=MODEL_VERSION, group_name=GROUP, kinds={"file"})
def model_artifact(context: AssetExecutionContext, state: StateFolder) -> MaterializeResult[None]:
    """A complete, safe model directory in the drop folder."""
    started = time.monotonic()
    with plain_failures():
        directory = directory_of(state.paths, VersionKey.parse(context.partition_key))
        missing = is_complete(directory)
        if missing is not None:
            raise CheckpointError(
                f"the model is not complete: {missing}",
                where=str(directory),
                fix="finish the copy; the sensor starts again when a file changes",
            )
        facts = check_checkpoint(directory)
        files = [(name, (directory / name).stat().st_size) for name in facts.files]
    return MaterializeResult(
        metadata={
            "directory": str(directory),
            "files": show.files_table(files),
            "size_mb": show.megabytes(sum(size for _, size in files)),
            "parameters": facts.parameters,
            "tensors": facts.tensors,
            "shards": len(facts.shards),
            "architecture": facts.architecture,
            "dtype": facts.dtype,
            "vocabulary": facts.vocab_size,
            "context_length": facts.context_length,
            "chat_template": facts.has_chat_template,
            "seconds": round(time.monotonic() - started, 3),
        }
    )


@asset(partitions_def=MODEL_VERSION, group_name=GROUP, deps=[model_artifact], kinds={"json"})
def model_manifest(context: AssetExecutionContext, state: StateFolder) -> MaterializeResult[None]:
    """The sha256 of every file; the digest of that list is the version's identity."""
    started = time.monotonic()
    with plain_failures():
        key = VersionKey.parse(context.partition_key)
        directory = directory_of(state.paths, key)
        with state.registry() as registry:
            manifest = registry.build_manifest(directory, progress=log_progress(context.log))
        stored = write_manifest(state.paths, key, manifest)
    seconds = time.monotonic() - started
    size = sum(entry.size for entry in manifest.files)
    return MaterializeResult(
        data_version=DataVersion(manifest.digest),
        metadata={
            "digest": manifest.digest,
            "files": show.digests_table(manifest.files),
            "config_digest": manifest.config_digest or "none",
            "tokenizer_digest": manifest.tokenizer_digest or "none",
            "chat_template_digest": manifest.chat_template_digest or "none",
            "size_mb": show.megabytes(size),
            "mb_per_second": round(size / 1e6 / max(seconds, 1e-6), 1),
            "manifest_file": str(stored),
            "seconds": round(seconds, 3),
        },
    )


@asset(partitions_def=MODEL_VERSION, group_name=GROUP, deps=[model_manifest], kinds={"sqlite"})
def registered_version(
    context: AssetExecutionContext, state: StateFolder
) -> MaterializeResult[None]:
    """The version in the registry: its files stored by digest, its name bound to its manifest."""
    started = time.monotonic()
    with plain_failures():
        key = VersionKey.parse(context.partition_key)
        manifest = read_manifest(state.paths, key)
        directory = directory_of(state.paths, key)
        with state.registry() as registry:
            stored = registry.ingest(directory, manifest, progress=log_progress(context.log))
            version = registry.register(
                manifest,
                model=key.model,
                version=key.version,
                actor=actor_of(context.run),
                source=f"{directory} by Dagster run {context.run.run_id}",
            )
    return MaterializeResult(
        data_version=DataVersion(version.digest),
        metadata={
            "digest": version.digest,
            "x-model-version": version.short,
            "registered_by": version.actor,
            "files": show.digests_table(version.manifest.files),
            "new_blobs": stored.new_blobs,
            "reused_blobs": stored.reused_blobs,
            "written_mb": show.megabytes(stored.bytes_written),
            "seconds": round(time.monotonic() - started, 3),
        },
    )


class PromotionConfig(Config):
    """How ``promoted_version`` moves the alias."""

    promote_alias: str = PRODUCTION
    """The alias to move."""
    reason: str = ""
    """For the audit log; empty names the Dagster run."""


@asset(partitions_def=MODEL_VERSION, group_name=GROUP, deps=[registered_version], kinds={"sqlite"})
def promoted_version(
    context: AssetExecutionContext, config: PromotionConfig, state: StateFolder
) -> MaterializeResult[None]:
    """The version that an alias names, moved there only if every gate of the policy has passed.

    The registry verifies the gates by itself: a blocking check stops what is downstream
    within one run only, and this asset can be selected alone.
    """
    with plain_failures(), state.registry() as registry:
        key = VersionKey.parse(context.partition_key)
        version = registry.version(str(key))
        before = registry.alias(key.model, config.promote_alias)
        alias = registry.promote(
            version.digest,
            alias=config.promote_alias,
            actor=actor_of(context.run),
            reason=config.reason or f"every gate passed; Dagster run {context.run.run_id}",
        )
        gates = registry.gates(version.digest)
        previous = "none" if before is None else registry.version(before.digest).name
    return MaterializeResult(
        data_version=DataVersion(version.digest),
        metadata={
            "alias": f"{key.model}:{config.promote_alias}",
            "digest": version.digest,
            "moved": before is None or before.digest != alias.digest,
            "previous": previous,
            "alias_revision": alias.revision,
            "gates": show.gates_table(gates),
            "roll_back_with": f"ironworks registry rollback {key.model} "
            f"--alias {config.promote_alias}",
        },
    )
