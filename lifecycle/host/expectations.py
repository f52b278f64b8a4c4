"""What a machine is meant to be: ``/etc/ironworks/host.toml``, every key optional.

A check that compares with a declaration says nothing where nothing was declared::

    [gpu]
    count = 8

    [cuda]
    version = "12.8"

    [torch.flags]              # as requested when torch was built
    USE_CUDNN = "1"

    [serving]
    environment = ["IRONWORKS_STATE", "CUDA_HOME"]
    shm_bytes = 1073741824
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from lifecycle.host.host import Host
from registry.errors import InputError

HOST_FILE = "/etc/ironworks/host.toml"

UVICORN_BACKLOG = 2048
"""The backlog that uvicorn asks of ``listen`` unless told otherwise (its ``--backlog``)."""


@dataclass(frozen=True)
class GpuExpectations:
    """``[gpu]``."""

    count: int | None = None
    max_temperature_celsius: int = 85
    """Where data-centre cards have little margin left before they slow down."""


@dataclass(frozen=True)
class CudaExpectations:
    """``[cuda]``."""

    version: str = ""
    """Of the toolkit that ``/usr/local/cuda`` shall be, such as 12.8."""


@dataclass(frozen=True)
class TorchExpectations:
    """``[torch]``."""

    flags: Mapping[str, str] = field(default_factory=dict)
    """Build settings that were requested, such as ``USE_CUDNN = "1"``."""


@dataclass(frozen=True)
class ServingExpectations:
    """``[serving]``."""

    environment: tuple[str, ...] = ("IRONWORKS_STATE",)
    """Variables that every replica must have."""
    shm_bytes: int = 1 << 30
    """Shared memory that must be free."""
    backlog: int = UVICORN_BACKLOG
    open_files: int = 8_192
    free_disk_bytes: int = 10 << 30
    units: tuple[str, ...] = ("ironworks-*.service",)


@dataclass(frozen=True)
class PythonExpectations:
    """``[python]``; empty: the interpreter that runs this, and the lock it was made from."""

    environment: str = ""
    lock: str = ""


@dataclass(frozen=True)
class Expectations:
    """The whole file; the defaults are what is right for any machine."""

    gpu: GpuExpectations = field(default_factory=GpuExpectations)
    cuda: CudaExpectations = field(default_factory=CudaExpectations)
    torch: TorchExpectations = field(default_factory=TorchExpectations)
    serving: ServingExpectations = field(default_factory=ServingExpectations)
    python: PythonExpectations = field(default_factory=PythonExpectations)

    @classmethod
    def of(cls, host: Host) -> Expectations:
        """Read the machine's declaration.

        Raises:
            InputError: it is no TOML, or has a key or a type that does not belong there.
        """
        text = host.read(HOST_FILE)
        if text is None:
            return cls()
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"it is no TOML: {error}", where=HOST_FILE) from error
        known = [part.name for part in fields(cls)]
        result = cls()
        for name, values in tables.items():
            if name not in known or not isinstance(values, dict):
                names = ", ".join(f"[{part}]" for part in known)
                raise InputError(
                    f"there is no table [{name}]", where=HOST_FILE, fix=f"there are {names}"
                )
            filled = _fill(name, getattr(result, name), values)
            result = replace(result, **{name: filled})
        return result


def _fill(table: str, default: Any, values: dict[str, Any]) -> Any:
    known = [part.name for part in fields(default)]
    given = {}
    for key, value in values.items():
        if key not in known:
            names = ", ".join(known)
            raise InputError(f"[{table}] has no key {key}", where=HOST_FILE, fix=f"it has {names}")
        given[key] = _typed(getattr(default, key), value)
        if given[key] is None:
            raise InputError(f"[{table}] {key} has the wrong type", where=HOST_FILE)
    return replace(default, **given)


def _typed(default: Any, value: Any) -> Any:
    """The value if it is of the default's type, else None; an absent default is a number."""
    if isinstance(default, tuple):
        words = isinstance(value, list) and all(isinstance(word, str) for word in value)
        return tuple(value) if words else None
    if isinstance(default, Mapping):
        return value if isinstance(value, dict) else None
    kind = int if default is None else type(default)
    return value if type(value) is kind else None
