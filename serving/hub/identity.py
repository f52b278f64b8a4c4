"""Who loads: the facts of host, process, build and configuration that every load records."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

import serving
from registry.loads import LoadIdentity
from serving.engine.messages import Hello
from serving.settings import Settings

VERIFICATION = "sha256 on read"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_GIT_SECONDS = 10.0
_LOAD_SETTINGS = ("alias", "dtype", "max_slots", "max_model_len", "max_batch_tokens", "threads")


@dataclass(frozen=True)
class ReplicaFacts:
    """What is the same for every load of one replica."""

    service: str
    host: str
    boot_id: str
    git_commit: str
    git_dirty: bool
    device: str
    dtype: str
    config_digest: str
    api_pid: int

    @classmethod
    def gather(cls, settings: Settings, device: str) -> ReplicaFacts:
        """Read them from the machine; blocks on ``git`` for a moment."""
        commit, dirty = source_commit()
        return cls(
            service=settings.service_name,
            host=socket.gethostname(),
            boot_id=_BOOT_ID.read_text().strip(),
            git_commit=commit,
            git_dirty=dirty,
            device=device,
            dtype=settings.dtype,
            config_digest=load_config_digest(settings, device),
            api_pid=os.getpid(),
        )

    def identity(self, hello: Hello, *, model: str, alias: str) -> LoadIdentity:
        """The identity of one load by the engine that said ``hello``."""
        return LoadIdentity(
            service=self.service,
            model=model,
            alias=alias,
            host=self.host,
            boot_id=self.boot_id,
            pid=hello.pid,
            process_start_us=hello.process_start_us,
            engine_version=hello.engine_version,
            torch_version=hello.torch_version,
            transformers_version=hello.transformers_version,
            git_commit=self.git_commit,
            git_dirty=self.git_dirty,
            device=self.device,
            dtype=self.dtype,
            config_digest=self.config_digest,
            verification=VERIFICATION,
            api_pid=self.api_pid,
        )


def source_commit() -> tuple[str, bool]:
    """Commit of the running source and whether tracked files differ from it.

    Outside a git checkout (an installed wheel) the commit is ``unknown`` and counts as
    dirty: nobody can say which source it was.
    """
    root = Path(serving.__file__).parents[1]

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *arguments],
            check=True,
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
        ).stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
        dirty = git("status", "--porcelain", "--untracked-files=no") != ""
    except (OSError, subprocess.SubprocessError):
        return "unknown", True
    return commit, dirty


def load_config_digest(settings: Settings, device: str) -> str:
    """sha256 (hex) of the settings that shape a load, as sorted JSON."""
    values: dict[str, str | int] = {name: getattr(settings, name) for name in _LOAD_SETTINGS}
    values["device"] = device
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
