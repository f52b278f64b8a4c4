"""The plan of a reconcile, against a made-up world in which every step can be the last one.

The world obeys each action as the real one does, a little later and in any order: processes
take their time to be ready, requests to end. Whoever reconciles may be killed after any
action; another one goes on from what it sees.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from lifecycle.fleet.observe import FleetObservation, ReplicaObservation
from lifecycle.fleet.probe import Probe
from lifecycle.fleet.proxy.base import ProxyServer
from lifecycle.fleet.reconcile import Action, plan
from registry.fleet import DesiredReplica

A = DesiredReplica("replica-1", "127.0.0.1", 1, "demo")
B = DesiredReplica("replica-2", "127.0.0.1", 2, "demo")


@dataclass
class Unit:
    """One replica of the world."""

    process: bool = False
    ready: bool = False
    draining: bool = False


@dataclass
class World:
    """Processes, the proxy's servers, and what was ever done wrong to a request."""

    proxied: bool = True
    proxy_up: bool = False
    units: dict[str, Unit] = field(default_factory=dict)
    servers: dict[str, ProxyServer] = field(default_factory=dict)
    crimes: list[str] = field(default_factory=list)

    def look(self, desired: list[DesiredReplica]) -> FleetObservation:
        servers = self.servers if self.proxy_up else {}
        names = {replica.service: (replica.host, replica.port) for replica in desired}

        def one(service: str) -> ReplicaObservation:
            unit = self.units.get(service, Unit())
            seen = Probe(live=unit.process, ready=unit.ready, draining=unit.draining)
            host, port = names.get(service, ("", 0))
            known = servers.get(service)
            return ReplicaObservation(service, host, port, unit.process, None, seen, known)

        running = {service for service, unit in self.units.items() if unit.process}
        return FleetObservation(
            at=0.0,
            seconds=0.0,
            replicas={service: one(service) for service in names},
            strangers={s: one(s) for s in (running | set(servers)) - set(names)},
            proxied=self.proxied,
            proxy_error="" if self.proxy_up or not self.proxied else "silent",
        )

    def obey(self, action: Action, desired: list[DesiredReplica]) -> None:
        declared = {replica.service: replica for replica in desired}
        service, server = action.service, self.servers.get(action.service)
        unit = self.units.setdefault(service, Unit()) if action.step in ("start", "stop") else None
        match action.step:
            case "start_proxy":
                self.proxy_up = True
                # As its configuration says: whatever should run is in rotation at once.
                self.servers = {
                    r.service: _server(r, "ready" if r.state == "running" else "maint")
                    for r in desired
                }
            case "introduce":
                self.servers[service] = _server(declared[service], "maint")
            case "enter" if server is not None:
                self.servers[service] = replace(
                    server, rotation="ready", weight=declared[service].weight
                )
            case "leave" if server is not None:
                self.servers[service] = replace(server, rotation="drain")
            case "forget":
                if server is not None and server.sessions and self.units[service].process:
                    self.crimes.append(f"{service} was forgotten with requests")
                self.servers.pop(service, None)
            case "start" if unit is not None:
                self.units[service] = Unit(process=True)
            case "stop" if unit is not None:
                if server is not None and (server.sessions or server.rotation == "ready"):
                    self.crimes.append(f"{service} was stopped with requests")
                self.units[service] = Unit()
            case "drain":
                self.units[service].draining, self.units[service].ready = True, False

    def later(self) -> None:
        """Time passes: what starts is ready, requests of whoever is out of rotation end."""
        for service, unit in self.units.items():
            unit.ready = unit.process and not unit.draining
            if server := self.servers.get(service):
                up = unit.ready
                sessions = server.sessions if server.rotation == "ready" else 0
                self.servers[service] = replace(server, up=up, sessions=sessions)

    def requests(self, count: int) -> None:
        """Requests come, to whoever is in rotation."""
        for service, server in self.servers.items():
            if server.rotation == "ready" and self.units.get(service, Unit()).ready:
                self.servers[service] = replace(server, sessions=count)


def _server(replica: DesiredReplica, rotation: str) -> ProxyServer:
    return ProxyServer(
        replica.service,
        replica.host,
        replica.port,
        rotation,  # type: ignore[arg-type]
        up=False,
        weight=replica.weight,
        sessions=0,
    )


def settle(world: World, desired: list[DesiredReplica], rounds: int = 30) -> None:
    for _ in range(rounds):
        actions = plan(desired, world.look(desired))
        if not actions:
            return
        for action in actions:
            world.obey(action, desired)
        world.later()
    raise AssertionError(f"it never ends: {[str(action) for action in actions]}")


def check(world: World, desired: list[DesiredReplica]) -> None:
    """Everything is as declared, and no request was harmed."""
    assert world.crimes == []
    for replica in desired:
        unit = world.units.get(replica.service, Unit())
        server = world.servers.get(replica.service)
        if replica.state == "running":
            assert unit.process and unit.ready
            if world.proxied:
                assert server is not None and server.in_rotation == (replica.weight > 0)
        elif replica.state == "stopped":
            assert not unit.process and server is None
        else:
            assert server is None or server.rotation != "ready"
            assert world.proxied or not unit.ready
    names = {replica.service for replica in desired}
    assert {s for s, unit in world.units.items() if unit.process} <= names
    assert set(world.servers) <= names


def test_a_fleet_comes_up_from_nothing_and_is_then_left_alone() -> None:
    world = World()
    settle(world, [A, B])
    check(world, [A, B])
    assert plan([A, B], world.look([A, B])) == []


def test_a_replica_that_has_to_go_is_first_seen_to_be_idle() -> None:
    world = World()
    settle(world, [A, B])
    world.requests(3)
    desired = [replace(A, state="stopped"), B]
    assert [a.step for a in plan(desired, world.look(desired))] == ["leave", "await_idle"]
    for action in plan(desired, world.look(desired)):
        world.obey(action, desired)
    waiting = plan(desired, world.look(desired))
    assert [a.step for a in waiting] == ["await_idle"] and "3 requests" in waiting[0].reason
    assert [a.step for a in plan(desired, world.look(desired), patient=False)] == ["stop", "forget"]
    world.later()
    assert [a.step for a in plan(desired, world.look(desired))] == ["stop", "forget"]


def test_a_silent_process_manager_is_not_taken_for_a_dead_replica() -> None:
    world = World(proxied=False, units={A.service: Unit(process=True, ready=True)})
    seen = world.look([A])
    silent = replace(seen, replicas={A.service: replace(seen.replicas[A.service], process=None)})
    assert [action.step for action in plan([A], silent)] == ["await_ready"]


def test_a_replica_that_drained_is_started_anew_when_it_should_serve() -> None:
    world = World(units={A.service: Unit(process=True, draining=True)})
    settle(world, [A])
    check(world, [A])


def test_replicas_are_only_started_while_the_proxy_can_not_be_reached() -> None:
    world = World(units={B.service: Unit(process=True)})
    actions = plan([A, B], world.look([A, B]))
    assert [(a.step, a.service) for a in actions if not a.waits] == [
        ("start_proxy", "proxy"),
        ("start", A.service),
    ]


states = st.sampled_from(["running", "drained", "stopped"])
declarations = st.lists(
    st.builds(
        lambda which, state, weight: replace(which, state=state, weight=weight),
        st.sampled_from([A, B]),
        states,
        st.sampled_from([0, 100, 256]),
    ),
    max_size=2,
    unique_by=lambda replica: replica.service,
)
units = st.builds(Unit, process=st.booleans(), draining=st.booleans())
killed_after = st.lists(st.integers(0, 4), max_size=6)


@settings(max_examples=800, deadline=None)
@given(
    st.booleans(),
    st.booleans(),
    st.dictionaries(st.sampled_from([A.service, B.service, "stray"]), units),
    st.lists(st.tuples(declarations, killed_after), min_size=1, max_size=4),
)
def test_whoever_is_killed_after_whichever_step_the_next_one_finishes_it(
    proxied: bool,
    proxy_up: bool,
    present: dict[str, Unit],
    history: list[tuple[list[DesiredReplica], list[int]]],
) -> None:
    world = World(proxied=proxied, proxy_up=proxied and proxy_up, units=present)
    for desired, kills in history:
        for count in kills:
            for action in plan(desired, world.look(desired))[:count]:
                world.obey(action, desired)
            world.later()
            world.requests(2)
        settle(world, desired)
        check(world, desired)
