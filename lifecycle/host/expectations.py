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
        result = cls()
        for name, values in tables.items():
            default = getattr(result, name, None)
            if default is None or not isinstance(values, dict):
                known = ", ".join(f"[{part.name}]" for part in fields(cls))
                raise InputError(f"there is no table [{name}]", where=HOST_FILE, fix=known)
            result = replace(result, **{name: _fill(name, default, values)})
        return result


def _fill(table: str, default: Any, values: dict[str, Any]) -> Any:
    given = {}
    for key, value in values.items():
        if not hasattr(default, key):
            known = ", ".join(part.name for part in fields(default))
            raise InputError(f"[{table}] has no key {key}", where=HOST_FILE, fix=f"it has {known}")
        before = getattr(default, key)
        if isinstance(value, list):
            value = tuple(value)
        kind = int if before is None else Mapping if isinstance(before, Mapping) else type(before)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InputError(f"[{table}] {key} has the wrong type", where=HOST_FILE)
        given[key] = value
    return replace(default, **given)
