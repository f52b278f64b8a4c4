"""``ironworks up``, ``down``, ``status`` and ``demo-model``: the commands behind the Makefile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from lifecycle.fleet.layout import BALANCE_VARIABLE, REPLICAS_VARIABLE
from lifecycle.fleet.proxy.config import Balance
from lifecycle.stack.report import Report
from lifecycle.stack.settings import StackSettings
from registry.paths import STATE_VARIABLE, StatePaths

stack_app = typer.Typer(no_args_is_help=True)
"""Commands of the control plane, for ``ironworks`` to take in at its top level."""

StateOption = Annotated[Path, typer.Option(envvar=STATE_VARIABLE, help="State folder.")]
PortOption = Annotated[int, typer.Option(envvar="IRONWORKS_PORT", help="Of the HTTP API.")]
DagsterPortOption = Annotated[
    int, typer.Option(envvar="IRONWORKS_DAGSTER_PORT", help="Of the Dagster UI.")
]

# Each command imports what it needs when it runs: Dagster takes a second to import.


@stack_app.command()
def up(
    state: StateOption = Path("var"),
    port: PortOption = 8000,
    dagster_port: DagsterPortOption = 3000,
    exporter_port: Annotated[
        int, typer.Option(envvar="IRONWORKS_EXPORTER_PORT", help="0: the UI's plus 1000.")
    ] = 0,
    replicas: Annotated[
        int, typer.Option(envvar=REPLICAS_VARIABLE, help="More than one: behind HAProxy.")
    ] = 1,
    balance: Annotated[
        Balance, typer.Option(envvar=BALANCE_VARIABLE, help="How HAProxy chooses a replica.")
    ] = "leastconn",
) -> None:
    """Start Dagster and the replicas, take the demo model through the lifecycle, ask it something.

    Only what is missing is done. Needs no network once the demo model has been fetched.
    """
    settings = StackSettings(
        _paths(state),
        port,
        dagster_port,
        exporter_port=exporter_port,
        replicas=replicas,
        balance=balance,
    )
    from lifecycle.stack.up import Up

    Up(settings, Report()).run()


@stack_app.command()
def down(state: StateOption = Path("var")) -> None:
    """Stop every process that was started in the state folder, and nothing else."""
    from lifecycle.stack.down import down as stop

    stop(_paths(state), Report())


@stack_app.command()
def status(
    state: StateOption = Path("var"),
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show what runs, and which version is in production and served."""
    from lifecycle.stack.status import look

    seen = look(StackSettings(_paths(state)))
    if as_json:
        typer.echo(json.dumps(seen.as_json(), indent=2))
        return
    typer.echo(f"state      {seen.state}")
    for process in seen.processes:
        place = f"pid {process.pid}, {process.uptime_seconds} s" if process.pid else ""
        typer.echo(f"{process.name:16} {process.state:18} {place:22} {process.address}".rstrip())
    for served in seen.production:
        by = ", ".join(served.served_by) or "no replica"
        typer.echo(f"production of {served.model}: {served.version} {served.digest[:12]}, by {by}")


@stack_app.command()
def demo_model(state: StateOption = Path("var")) -> None:
    """Fetch the demo model and convert it, into the state folder's demo cache."""
    from lifecycle.stack.demo import demo_model as make

    typer.echo(make(_paths(state), Report()))


def _paths(state: Path) -> StatePaths:
    return StatePaths(state.expanduser().resolve())
