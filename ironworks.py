"""The ``ironworks`` command: every plane's commands under one name, each imported when called."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from importlib import metadata

from registry.errors import InputError, IronworksError


@dataclass(frozen=True)
class Mount:
    """Where a command is defined.

    Attributes:
        module: imported when the command is called.
        app: name of the typer app in it.
        summary: shown by ``ironworks --help``, which imports nothing.
        is_app: the command is the whole app, with subcommands; else one command of it.
    """

    module: str
    app: str
    summary: str
    is_app: bool = False


COMMANDS = {
    "up": Mount("lifecycle.cli", "stack_app", "Start everything here, and prove it"),
    "down": Mount("lifecycle.cli", "stack_app", "Stop what `up` started"),
    "status": Mount("lifecycle.cli", "stack_app", "Show what runs and what it serves"),
    "fleet": Mount("lifecycle.fleet.cli", "fleet_app", "Which replicas should run, and do", True),
    "demo-model": Mount("lifecycle.cli", "stack_app", "Fetch and convert the demo model"),
    "host": Mount("lifecycle.host.cli", "host_app", "Verify the machine under the replicas", True),
    "doctor": Mount("lifecycle.host.cli", "doctor_app", "What is wrong here, and what to do", True),
    "exporter": Mount(
        "lifecycle.host.exporter", "exporter_app", "Show this host's GPUs to Prometheus", True
    ),
    "registry": Mount("registry.cli", "registry_app", "Versions, aliases, gates, blobs", True),
    "audit": Mount(
        "registry.cli", "audit_app", "Which weights served when; is the log whole", True
    ),
    "serve": Mount("serving.cli", "serve_app", "Serve a model of the registry over HTTP"),
    "replica": Mount("serving.cli", "serve_app", "Ask or steer a running replica"),
}


def run(arguments: list[str]) -> None:
    """Run one command line, without the program's name.

    Raises:
        InputError: there is no such command.
        IronworksError: what the command raised.
        SystemExit: the command has ended with that status.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help())
        return
    if arguments[0] == "--version":
        print(f"ironworks {metadata.version('ironworks')}")
        return
    mount = COMMANDS.get(arguments[0])
    if mount is None:
        raise InputError(
            "there is no such command", where=arguments[0][:80], fix="see `ironworks --help`"
        )
    app = getattr(importlib.import_module(mount.module), mount.app)
    if mount.is_app:
        app(args=arguments[1:], prog_name=f"ironworks {arguments[0]}")
    else:
        app(args=arguments, prog_name="ironworks")


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {mount.summary}" for name, mount in COMMANDS.items()]
    return "\n".join(
        [
            "Self-hosted language models on bare metal, from an empty server to an audited answer.",
            "",
            "usage: ironworks COMMAND [ARGUMENTS], ironworks COMMAND --help, ironworks --version",
            "",
            *lines,
        ]
    )


def print_error(error: IronworksError) -> None:
    """Write an error as up to three plain lines to stderr."""
    print(f"error: {error.what}", file=sys.stderr)
    for label, text in (("where", error.where), ("fix", error.fix)):
        if text:
            print(f"{label}: {text}", file=sys.stderr)


def main() -> None:
    """Run the command line; exits with 2 when the user can act on what went wrong."""
    try:
        run(sys.argv[1:])
    except IronworksError as error:
        print_error(error)
        sys.exit(2)


if __name__ == "__main__":
    main()
