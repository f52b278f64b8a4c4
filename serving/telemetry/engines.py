"""Metrics read from the hub at scrape time: a scrape asks no engine and wakes no model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from serving.engine.messages import EngineStats
from serving.hub.protocol import ModelCard, ModelHub


class EngineCollector(Collector):
    """Turn ``hub.models()`` and ``hub.stats()`` into metric families.

    Args:
        hub: the replica's models.
    """

    def __init__(self, hub: ModelHub) -> None:
        self._hub = hub

    def describe(self) -> Iterable[Metric]:
        """Nothing up front, so that registering doesn't read the hub before it starts."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Every family, of the models that have data now."""
        cards = self._hub.models()
        stats = self._hub.stats()
        yield _device_memory(cards, stats)
        yield from _loads(cards)
        yield from _engines(stats)


def _device_memory(cards: list[ModelCard], stats: Mapping[str, EngineStats]) -> Metric:
    used: dict[str, int] = {}
    for card in cards:
        if card.device and card.name in stats:
            held = stats[card.name].device_memory_bytes
            used[card.device] = used.get(card.device, 0) + held
    family = GaugeMetricFamily(
        "gpu_memory_used_bytes",
        "Bytes the engines hold on a device (device=cpu: their resident memory)",
        labels=("device",),
    )
    for device, held in used.items():
        family.add_metric((device,), held)
    return family


def _loads(cards: list[ModelCard]) -> Iterable[Metric]:
    total = GaugeMetricFamily(
        "model_load_time_seconds", "Latest load, start to ready", labels=("model",)
    )
    phases = GaugeMetricFamily(
        "ironworks_startup_time_seconds", "Latest load by phase", labels=("model_name", "phase")
    )
    rate = GaugeMetricFamily(
        "ironworks_weight_load_bytes_per_second",
        "Weights read and hashed per second in the latest load",
        labels=("model_name",),
    )
    restarts = CounterMetricFamily(
        "ironworks_engine_restarts", "Engines brought back", labels=("model_name",)
    )
    up = GaugeMetricFamily(
        "ironworks_model_ready",
        "1 while the model serves; the version is the manifest's short digest",
        labels=("model_name", "model_version"),
    )
    for card in cards:
        for phase, seconds in card.load_seconds.items():
            if phase == "total":
                total.add_metric((card.name,), seconds)
            else:
                phases.add_metric((card.name, phase), seconds)
        if (reading := card.load_seconds.get("read", 0.0)) > 0 and card.weight_bytes:
            rate.add_metric((card.name,), card.weight_bytes / reading)
        restarts.add_metric((card.name,), card.restarts)
        up.add_metric((card.name, card.short), float(card.state == "ready"))
    return total, phases, rate, restarts, up


def _engines(stats: Mapping[str, EngineStats]) -> Iterable[Metric]:
    hit_rate = GaugeMetricFamily(
        "kv_cache_hit_rate",
        "Share of prompt tokens found in the prefix cache since the engine started",
        labels=("model",),
    )
    running = _gauge("num_requests_running", "Sequences in the batch")
    waiting = _gauge("num_requests_waiting", "Sequences waiting for a slot")
    usage = _gauge("kv_cache_usage_perc", "KV cache in use, 1 = full")
    steps = _counter("engine_steps", "Steps computed")
    queries = _counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache")
    hits = _counter("prefix_cache_hits", "Prompt tokens found in the prefix cache")
    errors = _counter("engine_integrity_errors", "Failed checks of the engine's own bookkeeping")
    for name, engine in stats.items():
        model = (name,)
        hit_rate.add_metric(model, _ratio(engine.prefix_hit_tokens, engine.prefix_query_tokens))
        running.add_metric(model, engine.running)
        waiting.add_metric(model, engine.waiting)
        usage.add_metric(model, _ratio(engine.kv_tokens_used, engine.kv_tokens_total))
        steps.add_metric(model, engine.steps)
        queries.add_metric(model, engine.prefix_query_tokens)
        hits.add_metric(model, engine.prefix_hit_tokens)
        errors.add_metric(model, engine.integrity_errors)
    return hit_rate, running, waiting, usage, steps, queries, hits, errors


def _gauge(name: str, help: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"ironworks_{name}", help, labels=("model_name",))


def _counter(name: str, help: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"ironworks_{name}", help, labels=("model_name",))


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
