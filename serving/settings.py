"""Settings of a replica: environment variables ``IRONWORKS_*``, checked before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from registry.errors import InputError

ENV_PREFIX = "IRONWORKS_"

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class Settings(BaseSettings):
    """What one replica serves, where, and within which limits."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="ignore")

    state: Path = Path("var")
    """State folder; made absolute."""
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=1, le=65535)
    service: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$")
    """Name of this replica in logs, sockets and the audit log; default ``replica-<port>``."""
    model: str = ""
    """Registry name of the model to serve; several are separated by commas."""
    alias: Name = "production"
    """Which version of each model is loaded at start: the one this alias names."""
    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d{1,2})?)$")
    """``auto`` is ``cuda:0`` where NVML sees a GPU, else ``cpu``."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    max_slots: int = Field(default=16, ge=1, le=4096)
    """Sequences that run at once on one engine."""
    max_model_len: int = Field(default=2048, ge=0)
    """Longest prompt plus output, tokens; 0 takes the model's own limit."""
    max_batch_tokens: int = Field(default=512, ge=1)
    max_waiting: int = Field(default=64, ge=0)
    """Requests that may wait for a slot; one more is refused with 429."""
    behind_proxy: bool = False
    """A full replica answers 503 with ``x-overloaded``, so that the proxy tries a peer; the
    proxy turns that into 429 when every replica is full."""
    threads: int = Field(default=0, ge=0, le=1024)
    """torch intra-op threads of an engine; 0 leaves torch's choice."""
    max_body_bytes: int = Field(default=4 * 1024 * 1024, ge=1024)
    drain_seconds: float = Field(default=30.0, ge=0)
    """How long running requests may take to end at SIGTERM."""
    swap_drain_seconds: float = Field(default=900.0, ge=0)
    """How long requests on a replaced version may take to end before they are cut.

    Far longer than at SIGTERM: nobody waits for a swap to end, the new version serves
    already, and a cut request is a failed request.
    """
    heartbeat_seconds: float = Field(default=10.0, gt=0)
    """How often a live load renews its lease in the registry."""
    engine_silence_seconds: float = Field(default=120.0, gt=0)
    """A serving engine that says nothing for this long is hung and is replaced.

    A healthy one speaks after every step and once a second when idle; the limit must
    exceed the longest single step.
    """
    stall_seconds: float = Field(default=30.0, gt=0)
    """An engine that has work and ends no step for this long is reported as stuck.

    ``/healthz/progress`` then answers 503 and the replica is not ready; it is the
    lifecycle that acts on it. Must exceed the longest single step.
    """
    load_silence_seconds: float = Field(default=600.0, gt=0)
    """The same for an engine that loads, where one phase may be long."""
    on_audit_unavailable: Literal["refuse"] = "refuse"
    """A load that can't be recorded does not serve; what already serves goes on."""

    @field_validator("state")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().resolve()

    @property
    def service_name(self) -> str:
        """``service``, or the default derived from the port."""
        return self.service or f"replica-{self.port}"

    @property
    def models(self) -> tuple[str, ...]:
        """Names of ``model``, in order, without blanks or repeats."""
        names = (name.strip() for name in self.model.split(","))
        return tuple(dict.fromkeys(name for name in names if name))

    @property
    def max_in_system(self) -> int:
        """Requests per model that run or wait; one more is refused with 429."""
        return self.max_slots + self.max_waiting


def load_settings(**overrides: object) -> Settings:
    """Settings from the environment, with ``overrides`` (None = not given) on top.

    Raises:
        InputError: a value is not acceptable; names the variable, never its value.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"setting {field} is not acceptable: {first['msg']}",
            where=f"{ENV_PREFIX}{field.upper()}",
            fix="correct the variable or the option of that name",
        ) from error
