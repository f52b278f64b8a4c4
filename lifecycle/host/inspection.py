"""One inspection of a machine: what several checks look at is looked at once."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from lifecycle.host.commands import Ran
from lifecycle.host.expectations import Expectations
from lifecycle.host.host import Host
from lifecycle.host.nvml import NvmlReading, probe
from lifecycle.host.pci import PciGpu, gpus
from lifecycle.host.serving_processes import ServingProcess, find_serving_processes
from registry.errors import IronworksError
from serving.client import ReplicaClient, admin_socket_path

TORCH_SECONDS = 180.0
"""Importing torch from a cold disk takes most of a minute."""

_REPLICA_SECONDS = 2.0


@dataclass(frozen=True)
class TorchFacts:
    """What ``python -m serving.torch_checks`` reported; ``error`` when it did not."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class ReplicaMemory:
    """``/debug/memory`` of one replica; ``error`` when it did not answer."""

    process: ServingProcess
    report: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


class Inspection:
    """A machine as the checks see it; every property is read at most once.

    Args:
        host: the machine, or a tree that looks like one.
        expected: what it is meant to be; None reads its own declaration.
        counters: kernel counters of the inspection before this one, of the same boot;
            without them a counter is compared with 0, its value at boot.

    Raises:
        InputError: the machine's declaration is not acceptable.
    """

    def __init__(
        self,
        host: Host,
        expected: Expectations | None = None,
        counters: Mapping[str, int] | None = None,
    ) -> None:
        self.host = host
        self.expected = Expectations.of(host) if expected is None else expected
        self.counters = dict(counters or {})

    @cached_property
    def gpus_on_bus(self) -> tuple[PciGpu, ...]:
        """NVIDIA's GPUs on the PCI bus, whether or not a driver has them."""
        return tuple(gpus(self.host))

    @cached_property
    def nvml(self) -> NvmlReading:
        """One look through NVML."""
        return probe(self.host)

    @property
    def has_gpu(self) -> bool:
        """Whether there is a GPU, or should be one."""
        return bool(
            self.gpus_on_bus
            or self.expected.gpu.count
            or self.host.exists("/dev/nvidiactl")
            or self.nvml.gpus
        )

    @cached_property
    def kernel(self) -> str:
        """Release of the running kernel, as ``uname -r`` prints it."""
        return (self.host.read("/proc/sys/kernel/osrelease") or "").strip()

    @cached_property
    def modules(self) -> frozenset[str]:
        """Names of the loaded kernel modules."""
        lines = (self.host.read("/proc/modules") or "").splitlines()
        return frozenset(line.split()[0] for line in lines if line.strip())

    @cached_property
    def driver_version(self) -> str:
        """Version of the loaded NVIDIA module, "" where none is loaded."""
        version = self.host.read("/sys/module/nvidia/version")
        if version:
            return version.strip()
        text = self.host.read("/proc/driver/nvidia/version") or ""
        found = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", text)
        return found[1] if found else ""

    @cached_property
    def torch(self) -> TorchFacts:
        """What torch says of itself, from a process of its own."""
        command = [sys.executable, "-m", "serving.torch_checks"]
        ran = self.host.run(command, deadline_seconds=TORCH_SECONDS)
        try:
            return TorchFacts(json.loads(ran.stdout.strip().splitlines()[-1]))
        except (ValueError, IndexError):
            return TorchFacts(error=ran.why)

    @cached_property
    def has_systemd(self) -> bool:
        """Whether systemd manages this machine (sd_booted(3))."""
        return self.host.exists("/run/systemd/system")

    @cached_property
    def serving(self) -> tuple[ServingProcess, ...]:
        """Replicas and engines that run."""
        return find_serving_processes(self.host)

    @cached_property
    def replica_memory(self) -> tuple[ReplicaMemory, ...]:
        """Memory by engine, as each replica reports it."""
        found = []
        for process in self.serving:
            if process.kind != "replica" or process.state is None:
                continue
            try:
                state = real_path(self.host, str(process.state))
                socket = admin_socket_path(state, process.service)
                with ReplicaClient(_address(process), socket, timeout=_REPLICA_SECONDS) as client:
                    found.append(ReplicaMemory(process, client.memory()))
            except IronworksError as error:
                found.append(ReplicaMemory(process, error=error.what))
        return tuple(found)

    def metrics(self, process: ServingProcess) -> str:
        """A replica's metrics, "" when it does not answer."""
        try:
            with ReplicaClient(_address(process), timeout=_REPLICA_SECONDS) as client:
                return client.metrics()
        except IronworksError:
            return ""

    @cached_property
    def journal_suppressed(self) -> Ran:
        """Journal lines of the last day that say that lines were dropped."""
        command = ["journalctl", "-u", "systemd-journald", "--since", "-24h", "-o", "cat"]
        return self.host.run([*command, "--no-pager", "-g", "Suppressed"], deadline_seconds=10)

    @cached_property
    def tcp_counters(self) -> dict[str, int]:
        """``TcpExt`` counters of /proc/net/netstat."""
        return paired_counters(self.host.read("/proc/net/netstat") or "", "TcpExt")


def _address(process: ServingProcess) -> str:
    return f"http://{process.option('host') or '127.0.0.1'}:{process.port}"


def paired_counters(text: str, family: str) -> dict[str, int]:
    """Counters of one family of /proc/net/netstat or snmp: a line of names, one of values."""
    lines = [line.split()[1:] for line in text.splitlines() if line.startswith(f"{family}:")]
    if len(lines) < 2:
        return {}
    pairs = zip(lines[0], lines[1], strict=False)
    return {name: int(value) for name, value in pairs if value.isdecimal()}


def real_path(host: Host, path: str) -> Path:
    """Where a path of the machine lies for us; links are resolved inside the host's root."""
    inside = host.resolve(path) or path
    return Path(f"{str(host.root).rstrip('/')}{inside}")


def version_tuple(text: str) -> tuple[int, ...]:
    """The numbers of a dotted version, for comparison."""
    return tuple(int(part) for part in re.findall(r"\d+", text))
