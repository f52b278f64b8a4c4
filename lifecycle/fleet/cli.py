"""``ironworks fleet …``: what should run, what runs, and making the two the same."""

from __future__ import annotations

import getpass
import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lifecycle.fleet.layout import FleetLayout
from lifecycle.fleet.managed import ManagedFleet
from lifecycle.fleet.supervisors.choice import choose_supervisor
from registry.errors import NotFoundError
from registry.fleet import DesiredReplica, DesiredState
from registry.paths import STATE_VARIABLE, StatePaths
from registry.store import Registry

fleet_app = typer.Typer(
    no_args_is_help=True,
    help="Which replicas should run, which do, and making the two the same.",
)

State = Annotated[Path, typer.Option(envvar=STATE_VARIABLE, help="State folder.")]
Service = Annotated[str, typer.Argument(help="Such as replica-8001.")]
Reason = Annotated[str, typer.Option(help="Why; kept in the log.")]


@fleet_app.command()
def show(
    state: State = Path("var"),
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show each declared replica beside what is seen of it, and what a reconcile would do."""
    fleet = _fleet(state)
    seen, pending = fleet.observe(), fleet.pending()
    if as_json:
        plan = [str(action) for action in pending]
        typer.echo(json.dumps({**seen.as_json(), "pending": plan}, indent=2))
        return
    for replica in fleet.desired():
        one = seen.replicas.get(replica.service)
        if one is None:
            continue
        state_seen = "ready" if one.ready else one.probe.reason or "no process"
        proxy = one.proxy
        rotation = "" if proxy is None else f"{proxy.rotation}, {proxy.sessions} requests"
        line = f"{replica.service:16} should be {replica.state:8} is {state_seen:24} {rotation}"
        typer.echo(line.rstrip())
    for action in pending:
        typer.echo(f"to do: {action}")


@fleet_app.command()
def reconcile(
    state: State = Path("var"),
    seconds: Annotated[float, typer.Option(help="Deadline for everything.")] = 900.0,
    drain_seconds: Annotated[float, typer.Option(help="For requests of what has to go.")] = 900.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would do.")] = False,
) -> None:
    """Make the fleet what it should be; safe at any time, twice, and after a crash."""
    fleet = _fleet(state)
    if dry_run:
        for action in fleet.pending():
            typer.echo(str(action))
        return
    done = fleet.reconcile(deadline_seconds=seconds, drain_seconds=drain_seconds, say=typer.echo)
    done.require_settled()
    typer.echo(f"the fleet is what it should be, after {done.seconds:.1f} s")


@fleet_app.command("set")
def set_state(
    service: Service,
    state: State = Path("var"),
    to: Annotated[
        DesiredState | None, typer.Option(help="What it should be; unchanged by default.")
    ] = None,
    weight: Annotated[int | None, typer.Option(help="Share of the load, 0 to 256.")] = None,
    reason: Reason = "asked for",
) -> None:
    """Change what a replica should be; `reconcile` (or the sensors) then make it so."""
    with Registry.open(_fleet(state).paths.registry, create=False) as registry:
        changed = _declared(registry, service)
        if to is not None:
            changed = replace(changed, state=to)
        if weight is not None:
            changed = replace(changed, weight=weight)
        registry.fleet.set(changed, actor=getpass.getuser(), reason=reason)


@fleet_app.command()
def add(state: State = Path("var"), reason: Reason = "asked for") -> None:
    """Declare one more replica like those declared, on the next port."""
    fleet = _fleet(state)
    another = fleet.layout.another(fleet.desired())
    with Registry.open(fleet.paths.registry, create=False) as registry:
        registry.fleet.set(another, actor=getpass.getuser(), reason=reason)
    typer.echo(another.service)


@fleet_app.command()
def remove(service: Service, state: State = Path("var"), reason: Reason = "asked for") -> None:
    """Forget a replica; the next reconcile drains and stops it."""
    with Registry.open(_fleet(state).paths.registry, create=False) as registry:
        _declared(registry, service)
        registry.fleet.remove(service, actor=getpass.getuser(), reason=reason)


def _fleet(state: Path) -> ManagedFleet:
    paths = StatePaths(state.expanduser().resolve())
    return ManagedFleet(paths, _layout(paths), choose_supervisor(paths))


def _layout(paths: StatePaths) -> FleetLayout:
    """As `make up` started it last, else as the environment says."""
    from lifecycle.stack.dagster_home import read_environment
    from lifecycle.stack.settings import StackSettings

    return FleetLayout.from_environment(read_environment(StackSettings(paths)) or None)


def _declared(registry: Registry, service: str) -> DesiredReplica:
    found = registry.fleet.get(service)
    if found is None:
        names = ", ".join(replica.service for replica in registry.fleet.desired())
        raise NotFoundError(
            "no such replica is declared", where=service[:100], fix=f"declared: {names or 'none'}"
        )
    return found
