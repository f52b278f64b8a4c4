"""Clients that stream one request after the other for as long as a drill lasts."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from benchmarks.load import Sample, prompts, stream_chat

_LIMIT_SECONDS = 120.0


@dataclass(frozen=True)
class Request:
    """One request: when it was sent and ended (monotonic seconds), and what came of it."""

    request_id: str
    sent: float
    ended: float
    sample: Sample

    @property
    def ok(self) -> bool:
        """Whether the whole answer came."""
        return not self.sample.failure


@dataclass(frozen=True)
class Outcome:
    """What the clients saw over a drill.

    Attributes:
        total: requests that ended.
        refused: no answer began, though another replica could have given one.
        broken: the answer began and did not end: its replica died.
        failed_at_healthy: of these, the ones that a healthy replica's log names as failed.
        failures: the first few, in words.
        versions: answers by short digest of the model version.
    """

    total: int
    refused: int
    broken: int
    failed_at_healthy: int
    failures: tuple[str, ...]
    versions: dict[str, int]


class Clients:
    """A number of concurrent clients in a thread of their own.

    Args:
        url: where ``/v1`` is.
        model: name it is served by.
        count: how many at once.
        max_tokens: of each answer.
        pause: seconds a client waits after a failure, as a polite one does.
    """

    def __init__(
        self, url: str, model: str, *, count: int, max_tokens: int = 16, pause: float = 0.2
    ) -> None:
        self._url, self._model = url, model
        self._count, self._max_tokens, self._pause = count, max_tokens, pause
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def start(self) -> None:
        """Send the first requests."""
        self._thread.start()

    def stop(self) -> None:
        """Send no more, and wait for those under way."""
        self._stop.set()
        self._thread.join(_LIMIT_SECONDS + 10)

    def requests(self) -> list[Request]:
        """Those that have ended, in that order."""
        with self._lock:
            return list(self._requests)

    def await_answers(self, count: int, *, after: float = 0.0, seconds: float = 120.0) -> float:
        """Wait for ``count`` good answers to requests sent after a moment.

        Returns:
            When the last of them ended (monotonic seconds).

        Raises:
            TimeoutError: they did not come; names the last failure.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            good = [r for r in self.requests() if r.ok and r.sent >= after]
            if len(good) >= count:
                return good[count - 1].ended
            time.sleep(0.02)
        bad = [r.sample.failure for r in self.requests() if not r.ok]
        raise TimeoutError(f"no {count} answers in {seconds:.0f} s; {bad[-1:] or 'no failure'}")

    def first_token(self, *, after: float) -> float:
        """When the first token came of all good answers to requests sent after a moment."""
        return min(r.sent + r.sample.ttft for r in self.requests() if r.ok and r.sent >= after)

    def outcome(self, healthy_logs: Iterable[Path] = ()) -> Outcome:
        """Sum up, naming as failed at a healthy replica what the logs of these say."""
        requests = self.requests()
        bad = {r.request_id: r for r in requests if not r.ok}
        blamed = {name for log in healthy_logs for name in _failed(log)} & bad.keys()
        return Outcome(
            total=len(requests),
            refused=sum(1 for r in bad.values() if r.sample.status != 200),
            broken=sum(1 for r in bad.values() if r.sample.status == 200),
            failed_at_healthy=len(blamed),
            failures=tuple(r.sample.failure for r in bad.values())[:5],
            versions=dict(Counter(r.sample.model_version for r in requests if r.ok)),
        )

    async def _run(self) -> None:
        limits = aiohttp.ClientTimeout(total=_LIMIT_SECONDS)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(timeout=limits, connector=connector) as session:
            await asyncio.gather(*(self._client(session, n) for n in range(self._count)))

    async def _client(self, session: aiohttp.ClientSession, number: int) -> None:
        for messages in prompts("unique", 10**9, seed=number):
            if self._stop.is_set():
                return
            request_id, sent = str(uuid.uuid4()), time.monotonic()
            sample = await stream_chat(
                session, self._url, self._model, messages, self._max_tokens, request_id
            )
            if not sample.failure and not sample.prompt_tokens:
                sample.failure = "the stream ended without its usage"
            with self._lock:
                self._requests.append(Request(request_id, sent, time.monotonic(), sample))
            if sample.failure:
                await asyncio.sleep(self._pause)


@contextmanager
def clients(
    url: str, model: str, *, count: int, max_tokens: int = 16, pause: float = 0.2
) -> Iterator[Clients]:
    """Clients that run while the body does, and answer at least once each before it."""
    group = Clients(url, model, count=count, max_tokens=max_tokens, pause=pause)
    group.start()
    try:
        group.await_answers(count)
        yield group
    finally:
        group.stop()


def _failed(log: Path) -> Iterator[str]:
    """Request ids in a replica's log that did not end with an answer."""
    for line in log.read_text(errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if not isinstance(record, dict) or record.get("event") != "request":
            continue
        # 429 and 503 are the proxy's cue to ask the next replica.
        if record.get("error_code") and record.get("status") not in (429, 503):
            yield str(record.get("request_id"))
