"""From a registered version to a live engine, each step on record before the next one.

Order: engine says who it is → ``load.started`` → it reads and hashes → its digests are
compared with the manifest → ``load.verified`` → it warms up → ``load.ready``. Any other end,
a cancellation included, kills the engine and records ``load.failed``.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from registry.errors import CheckpointError, InputError, IntegrityError, IronworksError
from registry.paths import StatePaths
from registry.store import Version
from serving.engine.messages import FileDigest, Load, LoadFailed, Progress, Verified
from serving.hub.engine_client import EngineClient, SilenceLimits
from serving.hub.identity import ReplicaFacts
from serving.hub.load_record import LoadRecord, Recorder
from serving.hub.loaded import LoadedEngine, LoadFacts
from serving.settings import Settings
from serving.text.codec import TextCodec

_log = structlog.get_logger(__name__)
_ERRORS: dict[str, type[IronworksError]] = {
    error.code: error for error in (CheckpointError, InputError, IntegrityError)
}


class Loader:
    """Makes engines for one replica."""

    def __init__(
        self,
        settings: Settings,
        facts: ReplicaFacts,
        recorder: Recorder,
        command: Sequence[str],
    ) -> None:
        self._settings = settings
        self._facts = facts
        self._recorder = recorder
        self._command = command
        self._paths = StatePaths(settings.state)
        self._numbers = itertools.count(1)

    async def load(self, version: Version, on_progress: Callable[[Progress], None]) -> LoadedEngine:
        """Load ``version`` on a new engine process.

        Raises:
            CheckpointError, IntegrityError, InputError: the engine refused the version.
            EngineDiedError: the engine ended or hung while it loaded.
            DatabaseError: the load could not be put on record.
        """
        began = time.monotonic()
        view = await self._recorder.call(lambda registry: registry.view(version.digest))
        alias = await self._alias_of(version)
        client, hello = await EngineClient.start(
            self._command,
            self._paths.socket(f"{self._facts.service}-engine-{next(self._numbers)}"),
            silence=SilenceLimits(
                self._settings.load_silence_seconds, self._settings.engine_silence_seconds
            ),
        )
        record = LoadRecord(self._recorder, version.digest)
        log = _log.bind(model=version.name, digest=version.short, pid=client.pid)
        log.info("loading")
        try:
            await record.started(self._facts.identity(hello, model=version.model, alias=alias))
            codec: list[TextCodec] = []

            async def on_verified(verified: Verified) -> None:
                check_verified(version, verified)
                await record.verified(
                    {file.path: file.sha256 for file in verified.files}, verified.seconds
                )
                codec.append(await asyncio.to_thread(TextCodec.from_directory, view))

            ready = await client.load(
                self._message(version, view), on_verified=on_verified, on_progress=on_progress
            )
            if isinstance(ready, LoadFailed):
                raise load_error(ready)
            if not codec:
                raise IntegrityError(
                    "the engine reported ready before the verification", where=version.name
                )
            await record.ready(ready.seconds)
        except BaseException as error:
            phase = client.phase  # killing it does not change where it was
            await asyncio.shield(_abandon(client, record, phase, error))
            raise
        seconds = {**ready.seconds, "total": time.monotonic() - began}
        log.info("ready", load_id=record.load_id, seconds=round(seconds["total"], 3))
        return LoadedEngine(version, client, codec[0], record, LoadFacts(ready, seconds))

    async def _alias_of(self, version: Version) -> str:
        """The replica's alias if it names ``version`` now, else "": the log must not guess."""
        name = self._settings.alias
        alias = await self._recorder.call(lambda registry: registry.alias(version.model, name))
        return name if alias is not None and alias.digest == version.digest else ""

    def _message(self, version: Version, view: Path) -> Load:
        return Load(
            model_dir=str(view),
            files=tuple(
                FileDigest(file.path, file.size, file.sha256) for file in version.manifest.files
            ),
            device=self._facts.device,
            dtype=self._settings.dtype,
            max_slots=self._settings.max_slots,
            max_model_len=self._settings.max_model_len,
            max_batch_tokens=self._settings.max_batch_tokens,
            threads=self._settings.threads,
        )


def check_verified(version: Version, verified: Verified) -> None:
    """Compare what the engine read with the manifest; the engine is not believed blindly.

    Raises:
        IntegrityError: a file differs, is missing or is not in the manifest.
    """
    expected = {file.path: (file.size, file.sha256) for file in version.manifest.files}
    read = {file.path: (file.size, file.sha256) for file in verified.files}
    for path in sorted(expected.keys() | read.keys()):
        if expected.get(path) != read.get(path):
            raise IntegrityError(
                "the bytes the engine read are not those of the manifest",
                where=f"{version.name}: {path}",
                fix="run `ironworks registry fsck`",
            )


def load_error(failed: LoadFailed) -> IronworksError:
    """The engine's refusal as the error class of its code."""
    kind = _ERRORS.get(failed.code, IronworksError)
    error = kind(failed.what, where=failed.where, fix=failed.fix)
    if kind is IronworksError:
        error.code = failed.code
    return error


async def _abandon(
    client: EngineClient, record: LoadRecord, phase: str, error: BaseException
) -> None:
    await client.kill()
    if isinstance(error, IronworksError):
        reason = str(error)
    elif isinstance(error, asyncio.CancelledError):
        reason = "the load was called off"
    else:
        reason = f"internal error: {type(error).__name__}"
    _log.warning("load failed", phase=phase, reason=reason, load_id=record.load_id)
    await record.failed(phase, reason)
