"""``ironworks host verify`` and ``ironworks doctor``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lifecycle.host.checks.latency import signals
from lifecycle.host.doctor import diagnose, topics
from lifecycle.host.host import this_host
from lifecycle.host.inspection import Inspection
from lifecycle.host.report import HostReport, counters_of
from lifecycle.host.verify import Progress, boot_id, report_file, verify_and_keep
from registry.cli.output import print_table
from registry.paths import STATE_VARIABLE, StatePaths

host_app = typer.Typer(no_args_is_help=True, help="The machine under the replicas.")
doctor_app = typer.Typer()

StateOption = Annotated[Path, typer.Option(envvar=STATE_VARIABLE, help="State folder.")]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]


@host_app.callback()
def _host() -> None:
    """Keep ``verify`` a subcommand, although it is the only one."""


@host_app.command()
def verify(state: StateOption = Path("var"), as_json: JsonOption = False) -> None:
    """Check driver, libraries, kernel, services and disks; exits with 0, 1 (warnings) or 2.

    Changes nothing and needs no root; what only root may see is *unknown*.
    """
    with _progress() as progress:
        report = verify_and_keep(this_host(), _paths(state), progress)
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=2))
    else:
        _print_table(report)
        typer.echo()
        _print_summary(report)
    raise typer.Exit(report.exit_code)


@doctor_app.command()
def doctor(
    topic: Annotated[str, typer.Argument(help=f"One of {', '.join(topics())}.")] = "",
    state: StateOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Say what is wrong on this machine, with evidence and fix; exits with 0, 1 or 2."""
    host = this_host()
    file = report_file(_paths(state))
    before = file.read_text() if file.is_file() else None
    inspection = Inspection(host, counters=counters_of(before, boot_id(host)))
    with _progress() as progress:
        report = diagnose(inspection, topic, progress)
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=2))
    elif topic == "latency":
        _print_latency(inspection)
    elif topic:
        _print_table(report)
    if not as_json:
        _print_problems(report)
        _print_summary(report)
    raise typer.Exit(report.exit_code)


def _print_table(report: HostReport) -> None:
    rows: list[tuple[str, str, str, str]] = []
    for group in report.groups:
        if group.note:
            rows.append((group.name, "-", "", group.note))
        for finding in group.findings:
            outcome = finding.outcome
            text = outcome.evidence
            if finding.is_problem:
                text += f"\nfix: {outcome.fix}"
            rows.append((group.name, finding.check, outcome.status, text))
    print_table(("group", "check", "status", "evidence"), rows)


def _print_problems(report: HostReport) -> None:
    for finding in report.problems:
        typer.echo(f"{finding.outcome.status} {finding.name}: {finding.outcome.evidence}")
        typer.echo(f"  fix: {finding.outcome.fix}")


def _print_latency(inspection: Inspection) -> None:
    rows = [
        (s.dimension, s.name, s.normal, s.seen, s.fix if s.high else "")
        for s in signals(inspection)
    ]
    print_table(("dimension", "signal", "normal", "seen", "fix"), rows)
    typer.echo()


def _print_summary(report: HostReport) -> None:
    counts = ", ".join(f"{number} {status}" for status, number in report.counts.items() if number)
    gpu = "" if report.has_gpu else " (no GPU)"
    typer.echo(f"{report.host}{gpu}: {counts or 'nothing to check'}, in {report.seconds:.1f} s")


@contextmanager
def _progress() -> Iterator[Progress | None]:
    """Show on a terminal which group is being checked."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with console.status("looking at the machine") as status:
        yield lambda group: status.update(f"checking {group}")


def _paths(state: Path) -> StatePaths:
    return StatePaths(state.expanduser().resolve())
