"""The GPUs of this host as the scale decision sees them: from the exporter, never from NVML.

A sensor must not hang with a driver, so it asks the exporter over HTTP. Where there is no GPU
on the bus there is nothing to ask; where there is one and the exporter is silent, or what it
shows is old, nothing is known, and nothing is what the decision then changes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

from lifecycle.host import pci
from lifecycle.host.host import Host

PORT_VARIABLE = "IRONWORKS_EXPORTER_PORT"
SILENT_SECONDS = 30.0
"""Six looks of the exporter: older than that is silence."""


@dataclass(frozen=True)
class GpuReading:
    """Means over the GPUs, 0 to 1; None is not known.

    Attributes:
        utilisation: share of time in which a kernel ran.
        memory: share of memory in use.
        healthy: GPUs that answer; None without any.
        unknown: why nothing is known of the GPUs that there are, "" otherwise.
    """

    utilisation: float | None = None
    memory: float | None = None
    healthy: int | None = None
    unknown: str = ""


def read(host: Host, *, timeout: float = 1.0) -> GpuReading:
    """Ask this host's exporter; never raises, never longer than ``timeout`` seconds."""
    if not pci.gpus(host):
        return GpuReading()
    port = os.environ.get(PORT_VARIABLE) or "4000"
    try:
        response = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=timeout, trust_env=False)
        response.raise_for_status()
        return parse(response.text)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return GpuReading(unknown=f"the host exporter is silent: {type(error).__name__}")


def parse(text: str) -> GpuReading:
    """Read the exporter's metrics.

    Raises:
        ValueError: the text is not in Prometheus' format.
    """
    values: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values.setdefault(sample.name, {})[sample.labels.get("gpu", "")] = float(sample.value)
    age = values.get("host_probe_age_seconds", {}).get("")
    if age is None or age > SILENT_SECONDS:
        shown = "never" if age is None else f"{age:.0f} s ago"
        return GpuReading(unknown=f"the GPUs were last seen {shown}")
    used, total = values.get("gpu_memory_used_bytes", {}), values.get("gpu_memory_total_bytes", {})
    utilisation = values.get("gpu_utilization_ratio", {})
    shares = [used[gpu] / total[gpu] for gpu in used.keys() & total.keys() if total[gpu] > 0]
    return GpuReading(
        utilisation=sum(utilisation.values()) / len(utilisation) if utilisation else None,
        memory=sum(shares) / len(shares) if shares else None,
        healthy=len(total),
    )
