"""Reads systemd's configuration files: units, drop-ins, journald.conf (systemd.syntax(7))."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from lifecycle.host.host import Host

UNIT_FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system")
"""In the order of precedence; the first that has a file of a name wins."""

Settings = dict[str, list[str]]
"""Values by key, in the order of the files; an empty value clears what was before it."""


def parse(text: str, into: Settings) -> None:
    """Add one file's settings, whatever their sections, to ``into``."""
    for line in text.replace("\\\n", " ").splitlines():
        key, equals, value = line.strip().partition("=")
        if not equals or key.startswith(("#", ";", "[")):
            continue
        key, value = key.strip(), value.strip()
        into[key] = [*into.get(key, []), value] if value else []


def unit_paths(host: Host, patterns: Iterable[str]) -> list[str]:
    """Unit files whose names match, each name once."""
    found: dict[str, str] = {}
    for folder in UNIT_FOLDERS:
        for pattern in patterns:
            for path in host.glob(f"{folder}/{pattern}"):
                found.setdefault(path.rpartition("/")[2], path)
    return sorted(found.values())


def unit_settings(host: Host, path: str) -> Settings:
    """A unit with its drop-ins; a template takes those of its instances along."""
    settings: Settings = {}
    parse(host.read(path) or "", settings)
    name = path.rpartition("/")[2].replace("@.", "@*.")
    for folder in reversed(UNIT_FOLDERS):
        for drop_in in host.glob(f"{folder}/{name}.d/*.conf"):
            parse(host.read(drop_in) or "", settings)
    return settings


def variables(host: Host, settings: Settings) -> tuple[set[str], bool]:
    """Names of the variables that a unit sets, and whether they could all be told."""
    names: set[str] = set()
    complete = True
    for value in settings.get("Environment", []):
        names |= {word.partition("=")[0] for word in _words(value)}
    for value in settings.get("PassEnvironment", []):
        names |= set(value.split())
    for value in settings.get("EnvironmentFile", []):
        path = value.removeprefix("-")
        if "%" in path or "*" in path:  # named by instance: known only when it runs
            complete = False
            continue
        names |= set(re.findall(r"^\s*(\w+)=", host.read(path) or "", re.MULTILINE))
    return names, complete


def _words(value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError:
        return value.split()
