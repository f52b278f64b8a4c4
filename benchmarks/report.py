"""What every benchmark prints last: one JSON line with figures, targets and whether they hold."""

from __future__ import annotations

import argparse
import json
import operator
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Target = tuple[Literal[">=", "<="], float]
_COMPARE = {">=": operator.ge, "<=": operator.le}


@dataclass(frozen=True)
class Options:
    """The command line that every benchmark understands."""

    quick: bool
    plot: Path | None


def parse_options(description: str | None) -> Options:
    """Read ``--quick`` and ``--plot DIR`` from the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="the same figures on less work")
    parser.add_argument("--plot", type=Path, metavar="DIR", help="write plots into this folder")
    arguments = parser.parse_args()
    return Options(quick=arguments.quick, plot=arguments.plot)


def machine() -> str:
    """Processor, cores and memory in a few words."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {os.cpu_count()} cores, {gigabytes:.0f} GiB"


def met(figures: Mapping[str, object], targets: Mapping[str, Target]) -> bool:
    """Whether every target holds; a target whose figure is absent does not."""
    for name, (comparison, bound) in targets.items():
        value = figures.get(name)
        if not isinstance(value, int | float) or not _COMPARE[comparison](value, bound):
            return False
    return True


def print_result(
    name: str,
    figures: Mapping[str, object],
    targets: Mapping[str, Target],
    load_average: tuple[float, float, float],
) -> None:
    """Print the result line.

    Args:
        name: the benchmark's module name.
        figures: what was measured, units in the names.
        targets: bounds on some of the figures.
        load_average: of the machine *before* the benchmark began: a busy machine explains a figure.
    """
    result = {
        "name": name,
        "machine": machine(),
        "load_average": [round(value, 2) for value in load_average],
        "figures": figures,
        "targets": {key: list(target) for key, target in targets.items()},
        "met": met(figures, targets),
    }
    print(json.dumps(result), flush=True)
