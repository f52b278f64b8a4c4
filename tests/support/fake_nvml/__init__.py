"""A machine with GPUs that aren't there: a fake NVML library and fake host tools.

The lowest border at which a GPU can be missing: the product's own nvidia-ml-py loads the
library, and the product's own commands find the tools on PATH. Hardware times aren't proven
by it; the delays are the test's.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lifecycle.host.commands import ProcessRunner
from lifecycle.host.host import Host

_HERE = Path(__file__).parent
_TOOLS = ("nvidia-smi", "rmmod", "modprobe", "systemctl")
MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm")


class FakeGpuHost:
    """A fixture tree, the library and the tools, in one folder.

    Args:
        home: a new folder.
        gpus: how many.
        driver: version of the loaded module and of the library.
    """

    def __init__(self, home: Path, *, gpus: int = 1, driver: str = "580.65.06") -> None:
        self.home = home
        self.root = home / "root"
        for folder in ("bin", "lib", "root/proc", "root/dev"):
            (home / folder).mkdir(parents=True)
        (home / "lib" / "libnvidia-ml.so.1").symlink_to(_library())
        for tool in _TOOLS:
            script = home / "bin" / tool
            script.write_text(
                f'#!/bin/sh\nexec {sys.executable} -I -S {_HERE / "tools.py"} {tool} "$@"\n'
            )
            script.chmod(0o755)
        (home / "calls.log").touch()
        (home / "state").touch()
        self.set(count=gpus, driver=driver)
        for index in range(gpus):
            self._device(index)
        self.modules(*MODULES, version=driver)
        self.file("/dev/kmsg", "")
        self.file("/proc/uptime", "1000.00 1000.00\n")
        self.file("/proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX {driver}\n")

    @property
    def env(self) -> dict[str, str]:
        """Variables with which a process lives on this machine."""
        return {
            "PATH": f"{self.home / 'bin'}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": str(self.home / "lib"),
            "FAKE_NVML_STATE": str(self.home / "state"),
            "FAKE_NVML_HOME": str(self.home),
            "IRONWORKS_HOST_ROOT": str(self.root),
        }

    def host(self) -> Host:
        """The machine as the product sees it."""
        return Host(self.root, ProcessRunner(self.env))

    @property
    def state(self) -> dict[str, str]:
        """What the library answers from."""
        lines = (self.home / "state").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def set(self, values: dict[str, object] | None = None, **more: object) -> None:
        """Change answers; None takes one back. Keys with a dot go into ``values``."""
        state: dict[str, object] = {**self.state, **(values or {}), **more}
        lines = [f"{key}={value}\n" for key, value in state.items() if value is not None]
        partial = self.home / "state.partial"
        partial.write_text("".join(lines))
        partial.replace(self.home / "state")

    @property
    def calls(self) -> list[str]:
        """Each call of a tool, in order."""
        return (self.home / "calls.log").read_text().splitlines()

    def file(self, path: str, text: str) -> None:
        """Write a file of the tree."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def modules(self, *names: str, version: str) -> None:
        """Load kernel modules."""
        for name in names:
            self.file(f"/sys/module/{name}/refcnt", "0\n")
        self.file("/sys/module/nvidia/version", f"{version}\n")

    def kernel_says(self, text: str, *, age_seconds: float = 0.0) -> None:
        """Append a line to the kernel's log, in the format of ``/dev/kmsg``."""
        uptime = float((self.root / "proc/uptime").read_text().split()[0])
        log = self.root / "dev/kmsg"
        number = len(log.read_text().splitlines())
        with log.open("a") as stream:
            stream.write(f"4,{number},{int((uptime - age_seconds) * 1e6)},-;{text}\n")

    def process(
        self, pid: int, name: str, *, holds: str = "/dev/nvidia0", state: str = "S"
    ) -> None:
        """A process that has a device file open; ``state`` D hangs in the kernel."""
        self.file(f"/proc/{pid}/comm", f"{name}\n")
        self.file(f"/proc/{pid}/cmdline", f"/usr/bin/{name}\0")
        self.file(f"/proc/{pid}/stat", f"{pid} ({name}) {state} 1 {pid} {pid} 0 -1 0 " + "0 " * 40)
        link = self.root / f"proc/{pid}/fd/7"
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(holds)

    def _device(self, index: int) -> None:
        address = f"0000:{0x3B + index:02x}:00.0"
        self.file(f"/sys/bus/pci/devices/{address}/vendor", "0x10de\n")
        self.file(f"/sys/bus/pci/devices/{address}/class", "0x030200\n")
        (self.root / f"sys/bus/pci/devices/{address}/driver").symlink_to(
            "/sys/bus/pci/drivers/nvidia"
        )
        self.file(f"/dev/nvidia{index}", "")


def wait_for(met: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until something is true; a generous deadline, never a measurement."""
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


@functools.cache
def _library() -> Path:
    """The library, built once per process in about 0.1 s."""
    folder = Path(tempfile.mkdtemp(prefix="fake-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = folder / "libnvidia-ml.so.1"
    source = str(_HERE / "nvml.c")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(target), source],
        check=True,
    )
    return target
