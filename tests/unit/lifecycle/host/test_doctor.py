"""The doctor names each failure of the ledger, and is silent about a healthy machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from lifecycle.host.doctor import diagnose, topics
from lifecycle.host.inspection import Inspection
from lifecycle.host.report import HostReport
from registry.errors import InputError
from tests.support.hosts import FixtureHost
from tests.support.hosts.failures import FAILURES, SAME_CAUSE, Failure


@pytest.fixture
def machine(tmp_path: Path) -> FixtureHost:
    return FixtureHost(tmp_path / "host")


def _diagnose(machine: FixtureHost, topic: str = "") -> HostReport:
    with machine.inspect() as inspection:
        return diagnose(inspection, topic)


def test_nothing_is_reported_of_a_healthy_machine(machine: FixtureHost) -> None:
    report = _diagnose(machine)
    assert report.problems == []
    assert report.counts["unknown"] == 0
    assert report.counts["pass"] > 60
    assert report.exit_code == 0


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.name)
def test_each_failure_is_named_with_evidence_and_fix(
    machine: FixtureHost, failure: Failure
) -> None:
    failure.make(machine)
    report = _diagnose(machine)
    named = {finding.name: finding.outcome for finding in report.problems}
    assert failure.finding in named
    outcome = named[failure.finding]
    assert outcome.status == failure.status
    assert failure.evidence in outcome.evidence
    assert failure.fix in outcome.fix
    assert set(named) - {failure.finding} <= SAME_CAUSE.get(failure.finding, set())
    assert report.exit_code == (2 if "fail" in {o.status for o in named.values()} else 1)


def test_a_topic_shows_only_its_groups(machine: FixtureHost) -> None:
    report = _diagnose(machine, "memory")
    assert {group.name for group in report.groups} == {"serving", "shared_memory", "gpu"}


def test_every_topic_can_be_asked(machine: FixtureHost) -> None:
    assert {"latency", "memory", "driver", "torch"} <= set(topics())
    for topic in topics():
        assert _diagnose(machine, topic).groups


def test_an_unknown_topic_is_refused_with_the_known_ones(machine: FixtureHost) -> None:
    with machine.inspect() as inspection, pytest.raises(InputError, match="latency"):
        diagnose(inspection, "weather")


def test_counters_are_compared_with_the_verification_before(machine: FixtureHost) -> None:
    machine.file("/proc/net/netstat", "TcpExt: ListenOverflows\nTcpExt: 341\n")
    with machine.inspect() as seen:
        later = Inspection(seen.host, counters={"ListenOverflows": 341})
        assert diagnose(later, "network").problems == []
