"""Output tokens per second and latency of our replica against whichever peers are installed.

usage: python -m benchmarks.engine [--quick] [--plot DIR]

One server runs at a time, all driven by the same client with the same prompts
(`benchmarks.load`). A ratio compares ours with a peer in the same run; on a shared
machine nothing else is worth quoting.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.load import Figures, Workload, drive
from benchmarks.peers import Peer, find_peers
from benchmarks.plots import plot_throughput
from benchmarks.report import Options, Target, parse_options, print_result
from lifecycle.stack.demo import demo_model
from lifecycle.stack.report import Report
from registry.paths import StatePaths

Runs = dict[tuple[Workload, int], Figures]

TARGETS: dict[str, Target] = {
    "unique_1_vs_transformers": (">=", 1.0),
    "unique_4_vs_transformers": (">=", 1.0),
    "unique_16_vs_transformers": (">=", 1.0),
}


def workloads(quick: bool) -> list[tuple[Workload, int, int]]:
    """(workload, clients, requests) of one server's turn."""
    scale = 1 if quick else 3
    return [
        ("unique", 1, 2 * scale),
        ("unique", 4, 4 * scale),
        ("unique", 16, 16 * scale),
        ("prefix", 8, 8 * scale),
    ]


def measure(peer: Peer, model_dir: Path, scratch: Path, *, quick: bool) -> tuple[Runs, int]:
    """Drive one server through every workload; also its peak resident bytes seen between them."""
    runs: Runs = {}
    peak = 0
    started = time.monotonic()
    with peer.start(model_dir, scratch) as server:
        progress(f"{peer.name}: ready after {time.monotonic() - started:.0f} s")
        for workload, clients, requests in workloads(quick):
            figures = drive(
                server.url,
                server.model,
                workload=workload,
                clients=clients,
                requests=requests,
                max_tokens=32 if quick else 64,
            )
            runs[workload, clients] = figures
            peak = max(peak, server.resident_bytes())
            progress(
                f"{peer.name}: {workload}, {clients} clients: "
                f"{figures.output_tokens_per_second} tokens/s, "
                f"TTFT p50 {figures.ttft_ms_p50} ms, {figures.failed} failed"
            )
    return runs, peak


def progress(message: str) -> None:
    """Say on stderr how far the benchmark is; stdout holds only the result."""
    print(message, file=sys.stderr, flush=True)


def ratios(ours: Runs, theirs: Runs, peer: str) -> dict[str, float]:
    """Our output tokens/s over the peer's, one figure a workload; absent where the peer failed."""
    found = {}
    for (workload, clients), figures in ours.items():
        other = theirs[workload, clients].output_tokens_per_second
        if other:
            ratio = figures.output_tokens_per_second / other
            found[f"{workload}_{clients}_vs_{peer}"] = round(ratio, 2)
    return found


def run(options: Options) -> None:
    """Measure every server that is there and print the result line."""
    load_average = os.getloadavg()
    model_dir = demo_model(StatePaths.from_env(), Report())
    results: dict[str, Runs] = {}
    figures: dict[str, object] = {}
    absent: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="ironworks-bench-") as folder:
        for peer in find_peers():
            if peer.absent:
                progress(f"{peer.name}: absent, {peer.absent}")
                absent[peer.name] = peer.absent
                continue
            results[peer.name], peak = measure(peer, model_dir, Path(folder), quick=options.quick)
            figures[f"{peer.name}_resident_bytes"] = peak
    for name, runs in results.items():
        for (workload, clients), run_figures in runs.items():
            figures[f"{name}_{workload}_{clients}"] = dataclasses.asdict(run_figures)
        if name != "ironworks":
            figures.update(ratios(results["ironworks"], runs, name))
    figures["absent"] = absent
    if options.plot:
        figures["plot"] = str(plot_throughput(results, options.plot / "engine.png"))
    print_result("engine", figures, TARGETS, load_average)


if __name__ == "__main__":
    run(parse_options(__doc__))
