"""``ironworks serve`` runs a replica; ``ironworks replica …`` talks to one that runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from registry.paths import StatePaths
from serving.client import ReplicaClient, admin_socket_path
from serving.settings import load_settings

serve_app = typer.Typer(no_args_is_help=True)
"""Commands of the data plane, for ``ironworks`` to take in at its top level."""

replica_app = typer.Typer(no_args_is_help=True, help="Ask or steer a replica that runs.")
serve_app.add_typer(replica_app, name="replica")

StateOption = Annotated[Path | None, typer.Option(help="State folder (IRONWORKS_STATE, ./var).")]
ServiceOption = Annotated[str, typer.Option(help="Name of the replica.")]


@serve_app.command()
def serve(
    model: Annotated[str | None, typer.Option(help="Registry name; several by commas.")] = None,
    alias: Annotated[str | None, typer.Option(help="Which version of it.")] = None,
    host: Annotated[str | None, typer.Option()] = None,
    port: Annotated[int | None, typer.Option()] = None,
    service: Annotated[str | None, typer.Option(help="Default: replica-PORT.")] = None,
    state: StateOption = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda:N")] = None,
    dtype: Annotated[str | None, typer.Option(help="auto, bfloat16, float16, float32")] = None,
    max_slots: Annotated[int | None, typer.Option(help="Sequences that run at once.")] = None,
    max_model_len: Annotated[int | None, typer.Option(help="Tokens; 0: the model's.")] = None,
    threads: Annotated[int | None, typer.Option(help="torch threads; 0: its choice.")] = None,
) -> None:
    """Serve models of the registry over HTTP until SIGTERM.

    Every option stands for the environment variable IRONWORKS_<NAME>, which also has the
    settings that have no option here.
    """
    settings = load_settings(
        model=model,
        alias=alias,
        host=host,
        port=port,
        service=service,
        state=state,
        device=device,
        dtype=dtype,
        max_slots=max_slots,
        max_model_len=max_model_len,
        threads=threads,
    )
    # Imported here: the other commands answer at once without the HTTP stack.
    from serving.replica import run
    from serving.telemetry.logging import configure_logging

    configure_logging(settings.service_name)
    run(settings)


@replica_app.command()
def status(service: ServiceOption = "replica-8000", state: StateOption = None) -> None:
    """Show what every model of a replica does now."""
    with _client(service, state) as client:
        _print(client.status())


@replica_app.command()
def memory(service: ServiceOption = "replica-8000", state: StateOption = None) -> None:
    """Show where a replica's memory is."""
    with _client(service, state) as client:
        _print(client.memory())


@replica_app.command()
def swap(
    version: Annotated[str, typer.Argument(help="model@version or a digest")],
    service: ServiceOption = "replica-8000",
    state: StateOption = None,
) -> None:
    """Serve another version without failing a request; shows the report."""
    with _client(service, state) as client:
        _print(client.swap(version))


@replica_app.command()
def drain(
    seconds: Annotated[float | None, typer.Option(help="Default: the replica's.")] = None,
    service: ServiceOption = "replica-8000",
    state: StateOption = None,
) -> None:
    """Take no more requests and wait for the running ones."""
    with _client(service, state) as client:
        _print({"still_running": client.drain(seconds)})


def _client(service: str, state: Path | None) -> ReplicaClient:
    root = StatePaths.from_env().root if state is None else state.expanduser().resolve()
    return ReplicaClient("http://127.0.0.1", admin_socket_path(root, service))


def _print(value: object) -> None:
    typer.echo(json.dumps(value, indent=2))
