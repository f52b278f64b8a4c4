"""``ironworks registry …``: put versions in, look at them, move aliases, check the store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from registry.checkpoint_files import check_checkpoint, check_config
from registry.cli.context import actor, opened, progress_bar
from registry.cli.output import moment, print_head, print_json, print_table
from registry.database import Database
from registry.fsck import fsck as run_fsck
from registry.migrate import migrate as run_migrate
from registry.paths import StatePaths
from registry.schema import REVISION
from registry.store import DATABASE_FILE

registry_app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Versions of models, their aliases, gates and stored files.",
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AliasName = Annotated[str, typer.Option("--alias", help="Such as production.")]
Reason = Annotated[str, typer.Option(help="Why; kept in the log.")]
Ref = Annotated[str, typer.Argument(help="model@version, or ≥ 12 digits of the digest.")]


@registry_app.command()
def init() -> None:
    """Make the registry of the state folder, if there is none."""
    with opened(create=True) as registry:
        print(f"registry {registry.root} (schema {REVISION})")


@registry_app.command()
def migrate() -> None:
    """Bring the database to this program's schema; backs it up first."""
    root = StatePaths.from_env().registry
    database = Database(root / DATABASE_FILE)
    try:
        backup = run_migrate(database)
    finally:
        database.close()
    print(f"schema {REVISION}" + (f"; backup {backup}" if backup else ""))


@registry_app.command()
def add(
    directory: Annotated[Path, typer.Argument(help="The model directory.")],
    model: Annotated[str, typer.Option(help="Name of the model.")],
    version: Annotated[str, typer.Option(help="Name of the version.")],
    as_json: AsJson = False,
) -> None:
    """Check, hash, store and register a model directory."""
    check_checkpoint(directory)
    findings = check_config(directory)
    with opened(create=True) as registry, progress_bar() as progress:
        manifest = registry.build_manifest(directory, progress=progress)
        stored = registry.ingest(directory, manifest, progress=progress)
        added = registry.register(
            manifest,
            model=model,
            version=version,
            actor=actor(),
            source=str(directory.resolve()),
        )
    if as_json:
        print_json({"version": added, "ingest": stored, "findings": findings})
        return
    print(f"{added.name} {added.digest}")
    print(
        f"{len(manifest.files)} files, {decimal(manifest.size)}; "
        f"{stored.new_blobs} new ({decimal(stored.bytes_written)}), "
        f"{stored.reused_blobs} stored before"
    )
    for finding in findings:
        print(f"warning: {finding}")


@registry_app.command("list")
def list_versions(
    model: Annotated[str | None, typer.Option(help="Only this model.")] = None,
    as_json: AsJson = False,
) -> None:
    """List versions and the aliases that point at them."""
    with opened() as registry:
        versions, aliases = registry.versions(model), registry.aliases(model)
        head = registry.audit.head()
    if as_json:
        print_json({"versions": versions, "aliases": aliases, "head": head})
        return
    print_table(
        ("version", "digest", "size", "registered", "by", "aliases"),
        (
            (
                version.name,
                version.short,
                decimal(version.manifest.size),
                moment(version.registered_us),
                version.actor,
                " ".join(alias.alias for alias in aliases if alias.digest == version.digest),
            )
            for version in versions
        ),
    )


@registry_app.command()
def show(ref: Ref, as_json: AsJson = False) -> None:
    """Show a version: its identity, files, aliases and gates."""
    with opened() as registry:
        version = registry.version(ref)
        aliases = [a for a in registry.aliases(version.model) if a.digest == version.digest]
        results = registry.gates(version.digest)
        head = registry.audit.head()
    if as_json:
        print_json({"version": version, "aliases": aliases, "gates": results, "head": head})
        return
    print(f"{version.name}\ndigest     {version.digest}")
    print(f"registered {moment(version.registered_us)} by {version.actor} from {version.source}")
    print(f"aliases    {' '.join(alias.alias for alias in aliases) or '-'}")
    print(f"gates      {' '.join(f'{r.gate}={r.outcome}' for r in results) or '-'}\n")
    print_table(
        ("file", "size", "sha256"),
        ((entry.path, decimal(entry.size), entry.sha256) for entry in version.manifest.files),
    )


@registry_app.command()
def promote(
    ref: Ref,
    alias: AliasName = "production",
    reason: Reason = "promoted from the command line",
    expected: Annotated[
        str | None, typer.Option(help="Refuse unless the alias points at this version now.")
    ] = None,
) -> None:
    """Point an alias at a version, if its gates satisfy the policy."""
    with opened() as registry:
        condition = {} if expected is None else {"expected": expected}
        moved = registry.promote(ref, alias=alias, actor=actor(), reason=reason, **condition)
        print(f"{moved.model}:{moved.alias} -> {registry.version(moved.digest).name}")
        print_head(registry.audit.head())


@registry_app.command()
def rollback(
    model: Annotated[str, typer.Argument(help="Name of the model.")],
    alias: AliasName = "production",
    to: Annotated[str | None, typer.Option(help="An earlier holder; default: the last.")] = None,
    reason: Reason = "rolled back from the command line",
) -> None:
    """Point an alias back at an earlier version, after re-hashing its files."""
    with opened() as registry:
        moved = registry.rollback(model, alias=alias, actor=actor(), reason=reason, to=to)
        print(f"{moved.model}:{moved.alias} -> {registry.version(moved.digest).name}")
        print_head(registry.audit.head())


@registry_app.command()
def gates(ref: Ref, as_json: AsJson = False) -> None:
    """List the gate results of a version, oldest first."""
    with opened() as registry:
        results, head = registry.gates(ref), registry.audit.head()
    if as_json:
        print_json({"gates": results, "head": head})
        return
    print_table(
        ("gate", "outcome", "numbers", "recorded", "expires", "policy", "by", "run"),
        (
            (
                r.gate,
                r.outcome,
                " ".join(f"{key}={value}" for key, value in r.numbers.items()),
                moment(r.recorded_us),
                moment(r.expires_us),
                r.policy[:12],
                r.actor,
                r.run_id,
            )
            for r in results
        ),
    )


@registry_app.command()
def fsck(as_json: AsJson = False) -> None:
    """Re-hash all stored files, verify the log and replay it; exits 1 if anything is wrong."""
    with opened() as registry, progress_bar() as progress:
        report = run_fsck(registry, progress=progress)
    if as_json:
        print_json(report)
    else:
        for problem in report.problems:
            print(f"problem: {problem}")
        for note in report.notes:
            print(f"note: {note}")
        print(
            f"{report.blobs} stored files ({decimal(report.bytes)}), {report.events} events, "
            f"{len(report.problems)} problems"
        )
        print_head(report.head)
    if report.problems:
        raise typer.Exit(1)


@registry_app.command()
def backup(file: Annotated[Path, typer.Argument(help="A new file.")]) -> None:
    """Copy the database while it is in use (stored files never change: copy them with rsync)."""
    with opened() as registry:
        registry.database.backup(file)
        print(f"{file} ({decimal(file.stat().st_size)})")
        print_head(registry.audit.head())
