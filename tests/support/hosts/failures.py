"""The seventeen failures of the ledger, each as a change to a healthy machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.support.hosts import ENGINE, REPLICA, STATE, FixtureHost, files
from tests.support.hosts.scripted_replica import DIGEST, GIB

_LIB = "/usr/lib/x86_64-linux-gnu"


@dataclass(frozen=True)
class Failure:
    """One way to break a machine.

    Attributes:
        name: as the ledger calls it.
        make: breaks it.
        finding: the check that must report it, and no other.
        status: how bad it is.
        evidence: a part of what it must show.
        fix: a part of what it must advise.
    """

    name: str
    make: Callable[[FixtureHost], None]
    finding: str
    status: str
    evidence: str
    fix: str


def _nouveau(host: FixtureHost) -> None:
    host.file("/proc/modules", files.HEALTHY["/proc/modules"] + "nouveau 1 0 - Live 0x0\n")


def _toolkit_link(host: FixtureHost) -> None:
    # As update-alternatives in automatic mode does when a newer toolkit is installed.
    host.link("/etc/alternatives/cuda", "/usr/local/cuda-13.0")


def _version_file(host: FixtureHost) -> None:
    host.remove("/usr/local/cuda-12.8/version.json")


def _floor(host: FixtureHost) -> None:
    driver = "515.105.01"
    host.gpu.set(driver=driver)
    host.gpu.modules("nvidia", version=driver)
    for name in ("libcuda", "libnvidia-ml"):
        host.file(f"{_LIB}/{name}.so.{driver}", "")
        host.link(f"{_LIB}/{name}.so.1", f"{name}.so.{driver}")


def _mismatch(host: FixtureHost) -> None:
    # An unattended upgrade: new user space, the old module still loaded.
    for name in ("libcuda", "libnvidia-ml"):
        host.file(f"{_LIB}/{name}.so.580.95.05", "")
        host.link(f"{_LIB}/{name}.so.1", f"{name}.so.580.95.05")
    host.gpu.set(init_ret=18)


def _cudnn_link(host: FixtureHost) -> None:
    # The article's hand-made `ln -sf`: the name of 9, the library of 8.
    host.library(f"{_LIB}/libcudnn.so.8.9.7", "libcudnn.so.8")
    host.link(f"{_LIB}/libcudnn.so.9", "libcudnn.so.8.9.7")


def _cudnn_majors(host: FixtureHost) -> None:
    other = f"7f0000002000-7f0000003000 r-xp 00000000 08:01 2  {_LIB}/libcudnn_ops_infer.so.8.9.7\n"
    host.file(f"/proc/{ENGINE}/maps", files.MAPS + other)


def _architecture(host: FixtureHost) -> None:
    host.torch["devices"] = [{"name": "NVIDIA V100", "capability": [7, 0]}]


def _flag(host: FixtureHost) -> None:
    host.torch["build_settings"]["USE_CUDNN"] = "OFF"


def _shm(host: FixtureHost) -> None:
    host.command("df", files.DF.format(shm=64 << 20))


def _backlog(host: FixtureHost) -> None:
    host.file("/proc/sys/net/core/somaxconn", "128\n")


def _overflow(host: FixtureHost) -> None:
    host.file("/proc/net/netstat", "TcpExt: SyncookiesSent ListenOverflows\nTcpExt: 0 341\n")


def _journal_quota(host: FixtureHost) -> None:
    host.file("/etc/systemd/journald.conf.d/10-small.conf", "[Journal]\nSystemMaxUse=500M\n")


def _journal_rate(host: FixtureHost) -> None:
    line = "Suppressed 4711 messages from ironworks-serving@8000.service"
    host.command("journalctl", f"echo '{line}'\n")


def _environment(host: FixtureHost) -> None:
    # Set in the shell that once started it by hand; systemd passes nothing on.
    host.file(
        "/etc/ironworks/host.toml",
        files.HEALTHY["/etc/ironworks/host.toml"].replace(
            '["IRONWORKS_STATE"]', '["IRONWORKS_STATE", "CUDA_HOME"]'
        ),
    )


def _environment_of_process(host: FixtureHost) -> None:
    _environment(host)
    host.file("/etc/ironworks/serving.env", f"IRONWORKS_STATE={STATE}\nCUDA_HOME=/usr/local/c\n")


def _gpu_lost(host: FixtureHost) -> None:
    host.gpu.kernel_says(
        "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, "
        "GPU has fallen off the bus."
    )
    host.gpu.set({"gpu0.ret": 15})


def _leak(host: FixtureHost) -> None:
    host.replica.engine |= {"device_bytes": 60 * GIB, "device_allocated_bytes": 19 * GIB}


def _slow_network(host: FixtureHost) -> None:
    host.command("ss", files.SS.format(connection="rtt:182.5/9.1 retrans:1/17", waiting=0))


def _slow_kernel(host: FixtureHost) -> None:
    host.command("ss", files.SS.format(connection="rtt:0.4/0.1", waiting=2047))


def _slow_gpu(host: FixtureHost) -> None:
    host.gpu.set({"gpu0.clock_reasons": 0x40})


def _compile(host: FixtureHost) -> None:
    host.file(
        f"{STATE}/registry/views/{DIGEST}/generation_config.json", '{"disable_compile": true}'
    )
    kernels = "/tmp/torchinductor_ironworks/ab/cabc.so"
    host.file(
        f"/proc/{ENGINE}/maps",
        f"{files.MAPS}7f0000004000-7f0000005000 r-xp 00000000 08:01 3  {kernels}\n",
    )


FAILURES = [
    Failure("nouveau loaded", _nouveau, "driver.nouveau", "fail", "nouveau", "blacklist nouveau"),
    Failure(
        "toolkit link moved",
        _toolkit_link,
        "cuda.toolkit_link",
        "fail",
        "/usr/local/cuda-13.0 (CUDA 13.0.0), CUDA 12.8 was declared",
        "update-alternatives --set cuda /usr/local/cuda-12.8",
    ),
    Failure(
        "version file missing",
        _version_file,
        "cuda.toolkit_version",
        "warn",
        "12.8 according to include/cuda.h",
        "--reinstall cuda-toolkit-12-8",
    ),
    Failure(
        "driver below toolkit floor",
        _floor,
        "cuda.driver_floor",
        "fail",
        "driver 515.105.01 is older than 525.60.13",
        "install driver 525.60.13",
    ),
    Failure(
        "user-space/driver mismatch",
        _mismatch,
        "driver.user_space",
        "fail",
        "loaded module is 580.65.06, but",
        "apt-mark hold",
    ),
    Failure(
        "cuDNN link wrong",
        _cudnn_link,
        "cudnn.links",
        "warn",
        "whose SONAME is libcudnn.so.8",
        "--reinstall libcudnn9",
    ),
    Failure(
        "cuDNN majors mixed",
        _cudnn_majors,
        "cudnn.mapped",
        "fail",
        f"pid {ENGINE} has cuDNN 8 and 9 mapped",
        "LD_LIBRARY_PATH",
    ),
    Failure(
        "built torch lacks the card's arch",
        _architecture,
        "torch.architectures",
        "fail",
        "NVIDIA V100 is sm_70",
        "TORCH_CUDA_ARCH_LIST=7.0",
    ),
    Failure(
        "requested flag ignored by the build",
        _flag,
        "torch.flags",
        "fail",
        "USE_CUDNN=ON was requested, the build has OFF",
        "build again",
    ),
    Failure(
        "/dev/shm too small", _shm, "shared_memory.size", "fail", "64 MiB of 64 MiB", "remount,size"
    ),
    Failure(
        "somaxconn",
        _backlog,
        "network.accept_backlog",
        "warn",
        "asks for a backlog of 2048 and gets 128",
        "sysctl -w net.core.somaxconn=4096",
    ),
    Failure(
        "backlog overflow",
        _overflow,
        "network.listen_overflows",
        "warn",
        "grew by 341 since boot",
        "somaxconn",
    ),
    Failure("journald quota", _journal_quota, "journal.quota", "warn", "SystemMaxUse=500M", "4G"),
    Failure(
        "journald rate limit",
        _journal_rate,
        "journal.suppressed",
        "warn",
        "Suppressed 4711 messages from ironworks-serving@8000.service",
        "RateLimitBurst",
    ),
    Failure(
        "service lost its environment variable",
        _environment,
        "systemd.environment",
        "fail",
        "ironworks-serving@.service does not set CUDA_HOME",
        "EnvironmentFile=",
    ),
    Failure(
        "running service lost its environment variable",
        _environment_of_process,
        "systemd.environment",
        "fail",
        f"(pid {REPLICA}) runs without CUDA_HOME",
        "restart",
    ),
    Failure("GPU lost (Xid)", _gpu_lost, "gpu.xid_events", "fail", "Xid 79 of 0000:3b", "reboot"),
    Failure(
        "memory leak",
        _leak,
        "serving.device_memory",
        "warn",
        "60.0 GiB reserved, 19.0 GiB allocated",
        "expandable_segments",
    ),
    Failure("latency spike: network", _slow_network, "latency.network", "warn", "182.5 ms", "mtr"),
    Failure(
        "latency spike: kernel",
        _slow_kernel,
        "latency.kernel",
        "warn",
        "Recv-Q 2047, Send-Q 2048",
        "accepts too slowly",
    ),
    Failure("latency spike: GPU", _slow_gpu, "latency.gpu", "warn", "0x40", "cooling"),
    Failure(
        "compile switched on for a model that declares it unsafe",
        _compile,
        "serving.compile_switch",
        "fail",
        "torchinductor_ironworks/ab/cabc.so is mapped",
        "TORCH_COMPILE_DISABLE=1",
    ),
]

SAME_CAUSE = {
    "gpu.xid_events": {"gpu.answers"},
    "driver.user_space": {"gpu.answers"},
    "latency.gpu": {"gpu.clock_reasons"},
    "network.listen_overflows": {"latency.kernel"},
    "cudnn.links": {"cudnn.header"},
}
"""Other checks that rightly report the same failure."""
