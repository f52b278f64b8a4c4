"""``ironworks audit …``: what served when, a version's history, and whether the log is whole."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from registry.cli.context import opened
from registry.cli.output import (
    event_rows,
    moment,
    print_head,
    print_json,
    print_table,
)
from registry.clock import iso, parse_time
from registry.errors import InputError

audit_app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Answers from the tamper-evident log; each names the log head it was read at.",
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Service = Annotated[str | None, typer.Option(help="Only this service, such as replica-8000.")]
Host = Annotated[str | None, typer.Option(help="Only this host.")]
Ref = Annotated[str, typer.Argument(help="model@version, or ≥ 12 digits of the digest.")]

_EVENT_COLUMNS = ("row", "time", "event", "actor", "details")


@audit_app.command("as-of")
def as_of(
    at: Annotated[str, typer.Option(help="ISO 8601 (UTC unless it says), unix seconds, or now.")],
    service: Service = None,
    host: Host = None,
    as_json: AsJson = False,
) -> None:
    """Tell which version was serving at a point in time, and how certain that is."""
    at_us = parse_time(at)
    with opened() as registry:
        answer = registry.queries.as_of(service, host, at_us=at_us)
    if as_json:
        print_json(answer)
        return
    print(f"serving at {iso(at_us)}:")
    if not answer.rows:
        print("nothing")
    else:
        print_table(
            ("certainty", "service", "host", "version", "digest", "since", "until", "note"),
            (
                (
                    row.certainty,
                    row.service,
                    row.host,
                    row.version,
                    row.digest[:12],
                    moment(row.ready_us),
                    moment(row.until_us),
                    row.note,
                )
                for row in answer.rows
            ),
        )
    print_head(answer.head)


@audit_app.command()
def trace(ref: Ref, as_json: AsJson = False) -> None:
    """Tell the whole history of a version: registration, gates, moves, loads."""
    with opened() as registry:
        answer = registry.queries.trace(ref)
    if as_json:
        print_json(answer)
        return
    print(f"{answer.version.name} {answer.version.digest}")
    print_table(_EVENT_COLUMNS, event_rows(answer.events))
    print_head(answer.head)


@audit_app.command()
def timeline(host: Host = None, service: Service = None, as_json: AsJson = False) -> None:
    """List loads and alias moves in order."""
    with opened() as registry:
        answer = registry.queries.timeline(host, service)
    if as_json:
        print_json(answer)
        return
    print_table(_EVENT_COLUMNS, event_rows(answer.events))
    print_head(answer.head)


@audit_app.command()
def verify(as_json: AsJson = False) -> None:
    """Check every row of the log; exits 1 and names the first bad row if it was changed."""
    with opened() as registry:
        result = registry.queries.verify()
    if as_json:
        print_json({"ok": result.ok, "verification": result})
    else:
        for problem in result.problems:
            print(f"broken: {problem}")
        if result.ok:
            print(f"whole: {result.rows} rows")
        print_head(result.head)
    if not result.ok:
        raise typer.Exit(1)


@audit_app.command()
def export(
    form: Annotated[Literal["csv", "jsonl"], typer.Option("--format")] = "jsonl",
    out: Annotated[Path | None, typer.Option(help="A new file; default: stdout.")] = None,
) -> None:
    """Write the whole log; the summary (rows, sha256, head) goes to stderr."""
    with opened() as registry:
        if out is None:
            result = registry.queries.export(form, sys.stdout)
        else:
            try:
                with out.open("x", encoding="utf-8", newline="") as file:
                    result = registry.queries.export(form, file)
            except OSError as error:
                raise InputError(
                    f"the file can't be written: {error.strerror}",
                    where=str(out),
                    fix="name a new file in a folder that exists",
                ) from error
    print(f"{result.rows} rows, sha256 {result.sha256}", file=sys.stderr)
    print(f"log head: {result.head.seq} {result.head.hash_hex}", file=sys.stderr)
