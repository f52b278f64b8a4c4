"""What the health sensor decides from: the fleet, and what the registry knows of each replica."""

from __future__ import annotations

from lifecycle.fleet.managed import ManagedFleet
from lifecycle.fleet.observe import FleetObservation
from lifecycle.fleet.reconcile import PROXY
from lifecycle.fleet.recovery import Sight
from registry.fleet import DesiredReplica
from registry.store import Registry


def look(fleet: ManagedFleet) -> tuple[FleetObservation, list[Sight]]:
    """Look at every declared replica and the proxy, within the deadline of `observe`."""
    with Registry.open(fleet.paths.registry) as registry:
        desired = registry.fleet.desired()
        seen = fleet.observe()
        sights = [_sight(registry, replica, seen) for replica in desired]
    if seen.proxied:
        sights.append(Sight(PROXY, proxy_error=seen.proxy_error))
    return seen, sights


def _sight(registry: Registry, replica: DesiredReplica, seen: FleetObservation) -> Sight:
    one = seen.replicas.get(replica.service)
    last = registry.loads.latest(replica.service)
    return Sight(
        replica.service,
        # Declared between two reads: seen at the next tick.
        desired=replica.state if one is not None else "stopped",
        seen=one,
        ran_before=last is not None,
        ended_on_purpose=last is not None and last.state == "unloaded",
    )
