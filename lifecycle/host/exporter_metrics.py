"""A host's GPUs as Prometheus series.

Names follow Prometheus' rules (base units); each says in its help which DCGM field it is. A
GPU that gives no value has no series: silence shows in ``host_probe_age_seconds``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from lifecycle.host.nvml import Gpu
from lifecycle.host.recovery.record import RecoveryRecord
from lifecycle.host.watch import GpuState, HostView

_GPU = ("gpu", "uuid")

_GAUGES: tuple[tuple[str, str, Callable[[Gpu], float | None]], ...] = (
    ("gpu_memory_used_bytes", "DCGM_FI_DEV_FB_USED", lambda g: g.memory_used_bytes),
    ("gpu_memory_total_bytes", "DCGM_FI_DEV_FB_TOTAL", lambda g: g.memory_total_bytes),
    ("gpu_utilization_ratio", "DCGM_FI_DEV_GPU_UTIL", lambda g: _ratio(g.utilization_percent)),
    (
        "gpu_memory_utilization_ratio",
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        lambda g: _ratio(g.memory_utilization_percent),
    ),
    ("gpu_temperature_celsius", "DCGM_FI_DEV_GPU_TEMP", lambda g: g.temperature_celsius),
    ("gpu_power_watts", "DCGM_FI_DEV_POWER_USAGE", lambda g: g.power_watts),
    ("gpu_pcie_width", "DCGM_FI_DEV_PCIE_LINK_WIDTH", lambda g: g.pcie_width),
    ("gpu_pcie_width_max", "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", lambda g: g.pcie_width_max),
    ("gpu_clock_event_reasons", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", lambda g: g.clock_reasons),
    ("gpu_remap_pending", "DCGM_FI_DEV_ROW_REMAP_PENDING", lambda g: g.remap_pending),
    ("gpu_remap_failed", "DCGM_FI_DEV_ROW_REMAP_FAILURE", lambda g: g.remap_failed),
    ("gpu_persistence_mode", "DCGM_FI_DEV_PERSISTENCE_MODE", lambda g: g.persistence),
    ("gpu_recovery_action", "NVML field 230", lambda g: g.recovery_action),
)

_COUNTERS: tuple[tuple[str, str, Callable[[Gpu], float | None]], ...] = (
    ("gpu_ecc_corrected", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", lambda g: g.ecc_corrected),
    ("gpu_ecc_uncorrected", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", lambda g: g.ecc_uncorrected),
    (
        "gpu_remapped_rows_corrected",
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        lambda g: g.rows_remapped_corrected,
    ),
    (
        "gpu_remapped_rows_uncorrected",
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        lambda g: g.rows_remapped_uncorrected,
    ),
)


@dataclass(frozen=True)
class Snapshot:
    """What the exporter knows when it is scraped.

    Attributes:
        view: the latest look that came to an end, None before the first.
        started: seconds since 1970 when the exporter began.
        last_success: when NVML last answered, or showed that there is no GPU; None: never.
        failures: looks without an answer, by name of the error.
        xids: messages since boot by PCI address and number; does not shrink with the log.
        recovery: how this host's recoveries went.
    """

    view: HostView | None
    started: float
    last_success: float | None
    failures: dict[str, int]
    xids: dict[tuple[str, int], int]
    recovery: RecoveryRecord


class HostCollector(Collector):
    """Turns the latest snapshot into series, at each scrape.

    Args:
        snapshot: gives it.
        now: seconds since 1970.
    """

    def __init__(self, snapshot: Callable[[], Snapshot], now: Callable[[], float]) -> None:
        self._snapshot = snapshot
        self._now = now

    def describe(self) -> Iterable[Metric]:
        """Nothing to reserve: the registry need not ask for a first look."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Every series of this host."""
        seen = self._snapshot()
        yield from self._probe(seen)
        yield from _recovery(seen.recovery)
        if seen.view is None:
            return
        yield from _state(seen.view)
        yield from _gpus(seen.view.nvml.gpus)
        xids = CounterMetricFamily(
            "gpu_xid", "Xid messages since boot (DCGM_FI_DEV_XID_ERRORS)", labels=("pci", "xid")
        )
        for (address, number), count in sorted(seen.xids.items()):
            xids.add_metric((address, str(number)), count)
        yield xids
        yield GaugeMetricFamily(
            "host_kernel_log_readable",
            "1 if Xid messages can be read; 0: gpu_xid_total means nothing",
            value=not seen.view.kernel_log,
        )

    def _probe(self, seen: Snapshot) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "host_probe_age_seconds",
            "Since the last successful look at the GPUs; before the first, since the start",
            value=max(0.0, self._now() - (seen.last_success or seen.started)),
        )
        if seen.view is not None:
            yield GaugeMetricFamily(
                "host_probe_seconds", "Duration of the latest look", value=seen.view.nvml.seconds
            )
        failures = CounterMetricFamily(
            "host_probe_failures", "Looks without an answer, by NVML's error", labels=("error",)
        )
        for name, count in sorted(seen.failures.items()):
            failures.add_metric((name,), count)
        yield failures


def _state(view: HostView) -> Iterator[Metric]:
    state = GaugeMetricFamily("host_gpu_state", "1 for the state that holds", labels=("state",))
    for name in GpuState:
        state.add_metric((name.value,), view.state is name)
    yield state
    gpus = GaugeMetricFamily("host_gpus", "GPUs, by who sees them", labels=("source",))
    gpus.add_metric(("pci",), len(view.on_bus))
    gpus.add_metric(("nvml",), len(view.nvml.gpus))
    yield gpus
    if view.nvml.driver_version:
        info = InfoMetricFamily("host_driver", "The NVIDIA driver")
        info.add_metric(
            (),
            {"version": view.nvml.driver_version, "cuda": view.nvml.cuda_version or ""},
        )
        yield info


def _gpus(gpus: tuple[Gpu, ...]) -> Iterator[Metric]:
    for name, source, read in _GAUGES:
        gauge = GaugeMetricFamily(name, source, labels=_GPU)
        _add(gauge, gpus, read)
        yield gauge
    for name, source, read in _COUNTERS:
        counter = CounterMetricFamily(name, f"{source}, since the driver was loaded", labels=_GPU)
        _add(counter, gpus, read)
        yield counter
    fault = GaugeMetricFamily("gpu_fault", "NVML's code of a broken GPU, 0 if none", labels=_GPU)
    for gpu in gpus:
        fault.add_metric((str(gpu.index), gpu.uuid or ""), gpu.fault.code if gpu.fault else 0)
    yield fault
    info = InfoMetricFamily("gpu", "Each GPU's names", labels=_GPU)
    for gpu in gpus:
        info.add_metric(
            (str(gpu.index), gpu.uuid or ""),
            {"name": gpu.name or "", "pci": gpu.pci_address or ""},
        )
    yield info


def _add(
    family: GaugeMetricFamily | CounterMetricFamily,
    gpus: tuple[Gpu, ...],
    read: Callable[[Gpu], float | None],
) -> None:
    for gpu in gpus:
        value = read(gpu)
        if value is not None:
            family.add_metric((str(gpu.index), gpu.uuid or ""), value)


def _recovery(record: RecoveryRecord) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "host_recoveries", "Attempts to recover this host", value=record.total_attempts
    )
    yield GaugeMetricFamily(
        "host_given_up",
        "1 while the host stays drained because recovery can't help",
        value=record.given_up is not None,
    )
    for name, text, value in (
        (
            "driver_recovered_seconds",
            "Of the latest recovery: from the fault until the driver answered again",
            record.driver_recovered_seconds,
        ),
        (
            "serving_again_seconds",
            "Of the latest recovery: from the fault until its replicas were ready again",
            record.serving_again_seconds,
        ),
    ):
        if value is not None:
            yield GaugeMetricFamily(name, text, value=value)


def _ratio(percent: int | None) -> float | None:
    return None if percent is None else percent / 100
