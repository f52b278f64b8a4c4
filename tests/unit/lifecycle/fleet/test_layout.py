"""Where replicas are: one on the public port, or several behind a proxy."""

from __future__ import annotations

from pathlib import Path

import pytest

from lifecycle.fleet.layout import FleetLayout
from lifecycle.fleet.managed import ManagedFleet
from lifecycle.fleet.supervisors.local import LocalSupervisor
from registry.errors import InputError
from registry.paths import StatePaths
from registry.store import Registry


def test_one_replica_is_where_clients_come_in() -> None:
    layout = FleetLayout(port=8000)
    (replica,) = layout.initial("demo", "production")
    assert (replica.service, replica.port) == ("replica-8000", 8000)
    assert layout.proxy is None and layout.settings == {}
    with pytest.raises(InputError, match="no proxy"):
        layout.another([replica])


def test_several_are_behind_the_port_and_a_new_one_fills_the_first_gap() -> None:
    layout = FleetLayout(port=8000, replicas=3)
    replicas = layout.initial("demo", "production")
    assert [replica.port for replica in replicas] == [8001, 8002, 8003]
    assert layout.proxy is not None and layout.proxy.port == 8000
    assert layout.another(replicas).port == 8004
    assert layout.another([replicas[0], replicas[2]]).service == "replica-8002"


@pytest.mark.parametrize(
    ("variables", "where"),
    [
        ({"IRONWORKS_REPLICAS": "two"}, "IRONWORKS_REPLICAS"),
        ({"IRONWORKS_REPLICAS": "0"}, "IRONWORKS_REPLICAS"),
        ({"IRONWORKS_REPLICAS": "1000"}, "IRONWORKS_REPLICAS"),
        ({"IRONWORKS_PORT": "-1"}, "IRONWORKS_PORT"),
        ({"IRONWORKS_PROXY_BALANCE": "random"}, "IRONWORKS_PROXY_BALANCE"),
    ],
)
def test_a_wrong_variable_is_named(variables: dict[str, str], where: str) -> None:
    with pytest.raises(InputError) as caught:
        FleetLayout.from_environment(variables)
    assert caught.value.where == where


def test_declaring_keeps_what_was_scaled_and_forgets_what_stands_in_the_way(
    tmp_path: Path,
) -> None:
    paths = StatePaths(tmp_path).create()

    def ports(layout: FleetLayout) -> list[int]:
        fleet = ManagedFleet(paths, layout, LocalSupervisor(paths))
        fleet.declare("demo", "production", actor="test", reason="test")
        return [replica.port for replica in fleet.desired()]

    assert ports(FleetLayout(port=8000)) == [8000]
    two = FleetLayout(port=8000, replicas=2)
    assert ports(two) == [8001, 8002], "the single replica has the proxy's port"
    fleet = ManagedFleet(paths, two, LocalSupervisor(paths))
    with Registry.open(paths.registry) as registry:
        registry.fleet.set(two.another(fleet.desired()), actor="scaler", reason="load")
    assert ports(two) == [8001, 8002, 8003], "what was scaled up stays"
    assert ports(FleetLayout(port=8000)) == [8000]
