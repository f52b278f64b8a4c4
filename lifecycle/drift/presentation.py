"""How drift and canary verdicts look in the Dagster UI: tables, pictures, numbers to plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dagster import MetadataValue, TableColumn, TableRecord, TableSchema

from lifecycle.drift.canary import CanaryVerdict
from lifecycle.drift.pooled import permutation_mmd
from lifecycle.drift.report import StreamReport
from lifecycle.drift.windows import Signals

_SEVERITY = ("ok", "insufficient_data", "warn", "alarm")
_DRIFT_COLUMNS = (
    *("stream", "signal", "effect", "threshold", "p_value", "beyond"),
    *("ks", "wasserstein", "jensen_shannon", "g", "chi2"),
)
_CANARY_COLUMNS = (
    *("replica", "prompt", "state", "nll", "nll_before"),
    *("largest", "agreement", "sha256"),
)


def drift_metadata(
    signals: Signals, streams: Sequence[StreamReport], silent: Mapping[str, str]
) -> dict[str, Any]:
    """Everything the page of ``drift_report`` shows.

    The numbers come from the stream that is worst off: a plot over time needs one value.
    """
    shown: dict[str, Any] = {
        "verdict": max((s.verdict.outcome for s in streams), key=_SEVERITY.index, default="none"),
        "streams": _table(
            ("stream", "verdict", "reason", "onset", "requests", "judgements"),
            [
                {
                    "stream": _name(one),
                    "verdict": one.verdict.outcome,
                    "reason": one.verdict.reason,
                    "onset": one.onset,
                    "requests": str(one.requests),
                    "judgements": str(len(one.judgements)),
                }
                for one in streams
            ],
        ),
        "signals": _table(_DRIFT_COLUMNS, [row for one in streams for row in _signal_rows(one)]),
        "requests": sum(one.requests for one in streams),
        "alarms": sum(one.verdict.outcome == "alarm" for one in streams),
    }
    if silent:
        shown["silent_replicas"] = dict(silent)
    judged = [one for one in streams if one.judgements]
    if judged:
        from lifecycle.drift.plots import histograms, trend

        worst = max(judged, key=lambda one: _SEVERITY.index(one.verdict.outcome))
        newest = worst.judgements[-1].signals
        shown |= {f"effect_{signal.name}": round(signal.effect, 4) for signal in newest}
        for name in signals.names("pooled"):
            _, p_value = permutation_mmd(list(worst.reference), list(worst.newest), name)
            shown[f"mmd_p_{name}"] = round(p_value, 4)
        shown["histograms"] = MetadataValue.md(histograms(signals, worst.reference, worst.newest))
        shown["trend"] = MetadataValue.md(trend(worst.judgements))
    return shown


def canary_metadata(
    verdicts: Sequence[tuple[str, CanaryVerdict]], silent: Mapping[str, str]
) -> dict[str, Any]:
    """Everything the page of ``canary_report`` shows."""
    shown: dict[str, Any] = {
        "verdicts": {service: f"{v.outcome}: {v.reason}" for service, v in verdicts},
        "answers": _table(
            _CANARY_COLUMNS,
            [
                {
                    "replica": service,
                    "prompt": result.prompt,
                    "state": result.state,
                    "nll": f"{result.nll:.4f}",
                    "nll_before": f"{result.nll_before:.4f}",
                    "largest": f"{result.largest:.4f}",
                    "agreement": f"{result.agreement:.3f}",
                    "sha256": result.sha256[:12],
                }
                for service, verdict in verdicts
                for result in verdict.results
            ],
        ),
        "alarms": sum(verdict.outcome == "alarm" for _, verdict in verdicts),
        "mean_moved_nats": max((verdict.mean_moved for _, verdict in verdicts), default=0.0),
    }
    if silent:
        shown["silent_replicas"] = dict(silent)
    return shown


def _signal_rows(one: StreamReport) -> list[dict[str, str]]:
    if not one.judgements:
        return []
    return [
        {
            "stream": _name(one),
            "signal": signal.name,
            "beyond": "yes" if signal.beyond else "",
            **{
                name: "" if (value := getattr(signal, name)) is None else f"{value:.4g}"
                for name in _DRIFT_COLUMNS
                if name not in ("stream", "signal", "beyond")
            },
        }
        for signal in one.judgements[-1].signals
    ]


def _name(one: StreamReport) -> str:
    return f"{one.key.model} {one.key.digest[:12]} {one.key.route} {one.key.tenant}"


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> Any:
    return MetadataValue.table(
        records=[TableRecord(dict(row)) for row in rows],
        schema=TableSchema(columns=[TableColumn(name, "string") for name in columns]),
    )
