"""Group ``cuda``: the toolkit and what it needs of driver and compiler."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from lifecycle.host.checks.driver_floors import MINOR_COMPATIBILITY, SHIPPED_WITH
from lifecycle.host.checks.outcome import Group, Outcome, failed, passed, unknown, warned
from lifecycle.host.inspection import Inspection, version_tuple

TOOLKIT = "/usr/local/cuda"


@dataclass(frozen=True)
class ToolkitVersion:
    """A toolkit's version and where it was read."""

    version: str
    source: str


def toolkit_version(inspection: Inspection) -> Outcome:
    """The toolkit says which version it is (L9)."""
    if not _installed(inspection):
        return passed(f"no toolkit in {TOOLKIT}: wheels carry their own CUDA runtime")
    found = read_toolkit_version(inspection)
    if found is None:
        return failed(
            f"nothing in {TOOLKIT} tells a version: no version.json, no version.txt, no bin/nvcc, "
            "no include/cuda.h",
            "install the toolkit again: the folder is incomplete",
        )
    if not found.source.endswith(("version.json", "version.txt")):
        return warned(
            f"version.json and version.txt are missing in {TOOLKIT}; "
            f"{found.version} according to {found.source}",
            "the installation is incomplete: sudo apt-get install --reinstall "
            f"cuda-toolkit-{found.version.replace('.', '-')} "
            "(version.txt alone is gone since CUDA 11)",
        )
    return passed(f"CUDA {found.version} according to {found.source}")


def toolkit_link(inspection: Inspection) -> Outcome | None:
    """``/usr/local/cuda`` leads to the version that was declared (L10)."""
    declared = inspection.expected.cuda.version
    target = inspection.host.resolve(TOOLKIT)
    if not declared:
        return None
    if target is None:
        return failed(
            f"{TOOLKIT} leads nowhere, CUDA {declared} was declared",
            f"sudo apt-get install cuda-toolkit-{declared.replace('.', '-')}",
        )
    found = read_toolkit_version(inspection)
    seen = found.version if found else target.rpartition("cuda-")[2]
    if version_tuple(seen)[:2] != version_tuple(declared)[:2]:
        return failed(
            f"{TOOLKIT} leads to {target} (CUDA {seen}), CUDA {declared} was declared",
            f"sudo update-alternatives --set cuda /usr/local/cuda-{declared}; "
            f"builds: CUDA_HOME=/usr/local/cuda-{declared}",
        )
    return passed(f"{TOOLKIT} leads to {target}, as declared")


def driver_floor(inspection: Inspection) -> Outcome | None:
    """The driver is new enough for the toolkit, and for torch's CUDA (L7)."""
    driver = inspection.driver_version
    if not driver:
        return None
    wanted = {}
    if _installed(inspection) and (found := read_toolkit_version(inspection)):
        wanted["the toolkit"] = found.version
    if torch := inspection.torch.facts.get("cuda"):
        wanted["torch"] = str(torch)
    notes = []
    for who, cuda in wanted.items():
        numbers = version_tuple(cuda)
        floor = MINOR_COMPATIBILITY.get(numbers[0])
        if floor is None:
            return unknown(f"CUDA {cuda} of {who} is not in the table of floors")
        if version_tuple(driver) < floor:
            needed = ".".join(f"{part:02}" for part in floor)
            return failed(
                f"driver {driver} is older than {needed}, the least for CUDA {cuda} of {who}",
                f"install driver {needed} or newer, or a toolkit of an older CUDA",
            )
        shipped = SHIPPED_WITH.get((numbers[0], numbers[1]))
        if shipped and version_tuple(driver) < shipped:
            text = ".".join(f"{part:02}" for part in shipped)
            notes.append(
                f"; CUDA {cuda} runs by minor-version compatibility: compiling its PTX needs {text}"
            )
    checked = ", ".join(f"CUDA {cuda} of {who}" for who, cuda in wanted.items())
    if not checked:
        return passed(f"driver {driver}; no CUDA is installed")
    return passed(f"driver {driver} is new enough for {checked}{''.join(dict.fromkeys(notes))}")


def host_compiler(inspection: Inspection) -> Outcome | None:
    """Nvcc accepts the machine's gcc."""
    # The toolkit's own guard: "#error -- unsupported GNU version! gcc versions later than 14 …"
    guard = inspection.host.read(f"{TOOLKIT}/include/crt/host_config.h") or ""
    newest = re.search(r"gcc versions later than (\d+)", guard)
    if newest is None:
        return None
    ran = inspection.host.run(["gcc", "-dumpfullversion"])
    if not ran.ok:
        return unknown(ran.why, "install gcc if torch or extensions are built here")
    gcc = ran.stdout.strip()
    if version_tuple(gcc)[0] > int(newest[1]):
        return warned(
            f"gcc {gcc} is newer than {newest[1]}, the newest that nvcc accepts (host_config.h)",
            f"sudo apt-get install g++-{newest[1]}; build with NVCC_CCBIN=g++-{newest[1]}",
        )
    return passed(f"gcc {gcc}; nvcc accepts up to {newest[1]}")


def read_toolkit_version(inspection: Inspection) -> ToolkitVersion | None:
    """Read it from the first place that tells: the order of L9."""
    host = inspection.host
    if text := host.read(f"{TOOLKIT}/version.json"):
        try:
            version = str(json.loads(text)["cuda"]["version"])
            return ToolkitVersion(version, f"{TOOLKIT}/version.json")
        except (ValueError, KeyError, TypeError):
            pass  # unreadable is as good as missing: the next place may tell
    if found := re.search(r"CUDA Version (\d+\.\d+\S*)", host.read(f"{TOOLKIT}/version.txt") or ""):
        return ToolkitVersion(found[1], f"{TOOLKIT}/version.txt")
    if host.exists(f"{TOOLKIT}/bin/nvcc"):
        ran = host.run([f"{TOOLKIT}/bin/nvcc", "--version"])
        if found := re.search(r"release (\d+\.\d+)", ran.stdout):
            return ToolkitVersion(found[1], "nvcc --version")
    header = host.read(f"{TOOLKIT}/include/cuda.h") or ""
    # 12080 is 12.8 (cuda.h: 1000 · major + 10 · minor).
    if found := re.search(r"#define\s+CUDA_VERSION\s+(\d+)", header):
        number = int(found[1])
        return ToolkitVersion(f"{number // 1000}.{number % 1000 // 10}", "include/cuda.h")
    return None


def _installed(inspection: Inspection) -> bool:
    return inspection.host.exists(TOOLKIT)


GROUP = Group(
    "cuda",
    "CUDA toolkit",
    (toolkit_version, toolkit_link, driver_floor, host_compiler),
    needs_gpu=True,
)
