"""From a number of replicas to what is declared, and from metrics to the decision's input."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lifecycle.fleet.layout import FleetLayout
from lifecycle.fleet.live_state import Shown
from lifecycle.fleet.observe import FleetObservation, ReplicaObservation
from lifecycle.fleet.probe import Probe
from lifecycle.fleet.proxy.base import ProxyServer
from lifecycle.fleet.scaling import ScaleSettings, leftovers, load_of, plan
from lifecycle.fleet.scrape import ReplicaLoad
from lifecycle.host.gpus import GpuReading, parse, read
from lifecycle.host.host import Host
from registry.errors import InputError

LAYOUT = FleetLayout(port=8000, replicas=2)
TWO = LAYOUT.initial("m", "production")

EXPORTED = """
host_probe_age_seconds {age}
gpu_memory_used_bytes{{gpu="0",uuid="a"}} 60
gpu_memory_total_bytes{{gpu="0",uuid="a"}} 80
gpu_utilization_ratio{{gpu="0",uuid="a"}} 0.9
gpu_memory_used_bytes{{gpu="1",uuid="b"}} 20
gpu_memory_total_bytes{{gpu="1",uuid="b"}} 80
gpu_utilization_ratio{{gpu="1",uuid="b"}} 0.3
"""


def test_a_target_is_a_total_and_the_last_port_goes_first() -> None:
    added, removed = plan(TWO, LAYOUT, 4, None)
    assert [r.port for r in added] == [8003, 8004] and removed == []
    assert plan([*TWO, *added], LAYOUT, 4, None) == ([], [])
    assert plan([*TWO, *added], LAYOUT, 2, None) == ([], ["replica-8004", "replica-8003"])


def test_what_is_drained_does_not_count_and_keeps_its_port() -> None:
    drained = [TWO[0], replace(TWO[1], state="drained")]
    added, removed = plan(drained, LAYOUT, 2, None)
    assert [r.port for r in added] == [8003] and removed == []


def test_each_new_replica_gets_a_gpu_of_its_own() -> None:
    added, _ = plan(TWO, LAYOUT, 5, 4)
    assert [r.device for r in added] == ["cuda:1", "cuda:2", "cuda:3"], "auto is the first GPU"


def test_a_single_replica_cannot_be_scaled() -> None:
    alone = FleetLayout(port=8000)
    with pytest.raises(InputError, match="no proxy"):
        plan(alone.initial("m", "production"), alone, 2, None)


def test_scaling_is_off_until_a_maximum_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IRONWORKS_SCALE_MAX", raising=False)
    assert "IRONWORKS_SCALE_MAX" in ScaleSettings.from_environment(LAYOUT).why_not
    monkeypatch.setenv("IRONWORKS_SCALE_MAX", "4")
    settings = ScaleSettings.from_environment(LAYOUT)
    assert settings.acts and settings.rule.max_replicas == 4
    assert not ScaleSettings.from_environment(FleetLayout()).acts
    monkeypatch.setenv("IRONWORKS_DRY_RUN", "1")
    assert "dry run" in ScaleSettings.from_environment(LAYOUT).why_not
    monkeypatch.setenv("IRONWORKS_SCALE_MIN", "5")
    with pytest.raises(InputError, match="less than the minimum"):
        ScaleSettings.from_environment(LAYOUT)
    monkeypatch.setenv("IRONWORKS_SCALE_MAX", "many")
    with pytest.raises(InputError, match="IRONWORKS_SCALE_MAX"):
        ScaleSettings.from_environment(LAYOUT)


def seen(*loads: ReplicaLoad | None) -> FleetObservation:
    return FleetObservation(
        0.0,
        0.0,
        {
            r.service: ReplicaObservation(
                r.service, r.host, r.port, True, 1, Probe(live=True, ready=True, load=load)
            )
            for r, load in zip(TWO, loads, strict=True)
        },
    )


def test_the_load_counts_only_what_came_since_the_last_look() -> None:
    bounds = (0.1, 1.0, 10.0, float("inf"))
    before = tuple(zip(bounds, (100.0, 100.0, 100.0, 100.0), strict=True))
    now = tuple(zip(bounds, (100.0, 100.0, 110.0, 110.0), strict=True))
    fleet = seen(ReplicaLoad(3, 2, 0.5, now), ReplicaLoad(4, 0, 0.8, ()))
    load = load_of(TWO, fleet, GpuReading(), before)
    assert (load.replicas, load.ready, load.in_system, load.kv_usage) == (2, 2, 9, 0.8)
    assert load.ttft_p95_seconds is not None and load.ttft_p95_seconds > 9
    whole = load_of(TWO, fleet, GpuReading(), ())
    assert whole.ttft_p95_seconds is not None and whole.ttft_p95_seconds < 9.0
    assert load_of(TWO, fleet, GpuReading(), now).ttft_p95_seconds is None


def test_what_should_be_gone_is_left_over_and_what_should_run_is_not() -> None:
    fleet = seen(ReplicaLoad(), ReplicaLoad())
    assert leftovers(TWO, fleet) == []
    stopped = [TWO[0], replace(TWO[1], state="stopped")]
    assert [text.split()[:2] for text in leftovers(stopped, fleet)] == [["stop", "replica-8002:"]]
    stray = ProxyServer("replica-8003", "127.0.0.1", 8003, "drain", up=True, weight=1, sessions=0)
    unknown = ReplicaObservation("replica-8003", "127.0.0.1", 8003, process=False, proxy=stray)
    strange = replace(fleet, proxied=True, strangers={"replica-8003": unknown})
    assert any("forget replica-8003" in text for text in leftovers(TWO, strange))
    gone = {
        **fleet.replicas,
        "replica-8001": replace(fleet.replicas["replica-8001"], process=False),
    }
    assert leftovers(TWO, replace(fleet, replicas=gone)) == [], "that is the recovery's"


def test_a_replica_without_metrics_makes_the_load_unknown() -> None:
    load = load_of(TWO, seen(ReplicaLoad(1, 0, 0.1, ()), None), GpuReading(), ())
    assert load.unknown == "no metrics of replica-8002"
    silent = load_of(TWO, seen(ReplicaLoad(), ReplicaLoad()), GpuReading(unknown="silent"), ())
    assert silent.unknown == "silent"


def test_the_gpus_are_read_from_the_exporter() -> None:
    reading = parse(EXPORTED.format(age=2))
    assert reading == GpuReading(utilisation=0.6, memory=0.5, healthy=2)
    old = parse(EXPORTED.format(age=300))
    assert old.healthy is None and "300 s ago" in old.unknown
    assert "never" in parse("").unknown


def test_no_gpu_is_nothing_to_ask_and_a_silent_exporter_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read(Host(tmp_path / "none")) == GpuReading()
    device = tmp_path / "gpu/sys/bus/pci/devices/0000:01:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    monkeypatch.setenv("IRONWORKS_EXPORTER_PORT", "1")
    assert "exporter is silent" in read(Host(tmp_path / "gpu")).unknown


def test_the_live_state_is_due_on_change_and_once_a_minute() -> None:
    shown = Shown("a", 100.0)
    assert not shown.is_due("a", 150.0) and shown.is_due("a", 160.0)
    assert not shown.is_due("b", 105.0), "what jitters is no change"
    assert shown.is_due("b", 111.0)
    assert Shown.from_json({"what": 1}) == Shown()
