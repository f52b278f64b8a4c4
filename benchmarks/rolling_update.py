"""A planned update of two replicas under streaming clients: none of their requests may fail.

usage: python -m benchmarks.rolling_update [--quick]

Another version is promoted while 16 clients stream through HAProxy; Dagster's promotions
sensor and reload_model do the rest. `--quick` updates once, else three times.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from benchmarks.drills.fleet import rolling_update
from benchmarks.drills.stack import running_stack
from benchmarks.recovery import Rows
from benchmarks.report import Options, Target, parse_options, print_result
from lifecycle.fleet.proxy.process import find_haproxy
from lifecycle.stack.demo import demo_model
from lifecycle.stack.report import Report
from registry.paths import StatePaths

CLIENTS = 16
TARGETS: dict[str, Target] = {
    "update.failed": ("<=", 0),
    "update.new_version_answers": (">=", CLIENTS),
}


def run(options: Options) -> None:
    """Update under load and print the result line.

    Raises:
        ProxyError: there is no HAProxy on this machine.
    """
    load_average = os.getloadavg()
    haproxy = find_haproxy()
    model = demo_model(StatePaths.from_env(), Report())
    rows = Rows(1 if options.quick else 3)
    versions = (f"v{number}" for number in range(2, 10**6))
    with (
        tempfile.TemporaryDirectory(prefix="ironworks-drills-") as folder,
        running_stack(Path(folder), model) as stack,
    ):
        rows.add("update", lambda: rolling_update(stack, next(versions), count=CLIENTS))
    figures = {
        **rows.figures,
        "clients": CLIENTS,
        "failed_drills": rows.failed,
        "haproxy": f"{haproxy.version} ({haproxy.origin})",
    }
    print_result("rolling_update", figures, TARGETS, load_average)


if __name__ == "__main__":
    run(parse_options(__doc__))
