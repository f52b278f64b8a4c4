"""Streams of sketches against their references: freeze, judge, decide, record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lifecycle.drift.verdict import Judgement, Rule, Verdict, decide, judge
from lifecycle.drift.windows import (
    Signals,
    StreamKey,
    Window,
    groups_from_newest,
    streams_of,
)
from registry.canonical import Json
from registry.store import Registry


@dataclass(frozen=True)
class StreamReport:
    """One stream and what came of it.

    Attributes:
        key: the stream.
        verdict: against the frozen reference.
        judgements: of the disjoint groups of requests since that reference, oldest first.
        reference: its windows; empty as long as there is none.
        newest: the windows of the newest judgement.
        onset: ``sudden`` where the requests just before were unlike too, else ``slow``; "" when
            nothing is beyond its threshold.
        frozen_now: whether this report froze the reference.
        requests: shown by all windows together.
    """

    key: StreamKey
    verdict: Verdict
    judgements: tuple[Judgement, ...]
    reference: tuple[Window, ...]
    newest: tuple[Window, ...]
    onset: str
    frozen_now: bool
    requests: int


def reference_kind(signals: Signals, key: StreamKey) -> str:
    """Name of a stream's frozen reference; other bins need another one."""
    return f"traffic:{signals.short}:{key.route.strip('/')}:{key.tenant}"


def report(
    registry: Registry, sketches: Iterable[Mapping[str, Any]], rule: Rule, actor: str
) -> tuple[Signals, list[StreamReport]]:
    """Judge every stream of a version that an alias names; each verdict is an event.

    Args:
        registry: keeps the references and the verdicts.
        sketches: what each replica showed.
        rule: when a difference is an alarm.
        actor: for the log.
    """
    signals, streams = streams_of(sketches)
    aliased = {alias.digest for alias in registry.aliases()}
    reports = []
    for key in sorted(streams):
        if key.digest in aliased:
            one = _stream(registry, signals, key, streams[key], rule, actor)
            registry.record("drift.verdict", key.digest, _event(one), actor=actor)
            reports.append(one)
    return signals, reports


def _stream(
    registry: Registry,
    signals: Signals,
    key: StreamKey,
    windows: list[Window],
    rule: Rule,
    actor: str,
) -> StreamReport:
    kind = reference_kind(signals, key)
    kept = registry.references.get(key.digest, kind)
    requests = sum(window.requests for window in windows)
    frozen_now = kept is None and requests >= rule.reference_requests
    if kept is None:
        if not frozen_now:
            reason = f"{requests} requests; the reference needs {rule.reference_requests}"
            verdict = Verdict("insufficient_data", (), reason)
            return StreamReport(key, verdict, (), (), (), "", False, requests)
        first = [window.as_json() for window in _first(windows, rule.reference_requests)]
        kept = registry.references.freeze(key.digest, kind, {"windows": first}, actor=actor)
    reference = [Window.from_json(value) for value in kept.body["windows"]]
    since = [window for window in windows if window.closed_us > reference[-1].closed_us]
    groups = groups_from_newest(since, rule.judged_requests)
    judgements = [judge(signals, reference, group, rule) for group in groups]
    verdict = decide(judgements, rule)
    newest = groups[-1] if groups else []
    onset = _onset(signals, windows, newest, rule) if verdict.signals else ""
    return StreamReport(
        key,
        verdict,
        tuple(judgements),
        tuple(reference),
        tuple(newest),
        onset,
        frozen_now,
        requests,
    )


def _first(windows: list[Window], requests: int) -> list[Window]:
    chosen: list[Window] = []
    for window in windows:
        chosen.append(window)
        if sum(one.requests for one in chosen) >= requests:
            break
    return chosen


def _onset(signals: Signals, windows: list[Window], newest: list[Window], rule: Rule) -> str:
    """Compare with the rolling reference: the requests before the two newest judgements."""
    before = groups_from_newest(windows[: windows.index(newest[0])], rule.judged_requests)[:-1]
    rolling: list[Window] = []
    for group in reversed(before):
        rolling = group + rolling
        if sum(window.requests for window in rolling) >= rule.reference_requests:
            break
    if len(rolling) < rule.n:
        return "unknown"
    return "sudden" if judge(signals, rolling, newest, rule).beyond else "slow"


def _event(one: StreamReport) -> dict[str, Json]:
    newest = one.judgements[-1].signals if one.judgements else ()
    return {
        "model": one.key.model,
        "route": one.key.route,
        "tenant": one.key.tenant,
        "outcome": one.verdict.outcome,
        "reason": one.verdict.reason,
        "signals": list(one.verdict.signals),
        "onset": one.onset,
        "requests": one.requests,
        "judgements": len(one.judgements),
        # In thousandths: the log holds no floats.
        "effect_milli": {signal.name: round(signal.effect * 1000) for signal in newest},
        "threshold_milli": {signal.name: round(signal.threshold * 1000) for signal in newest},
    }
