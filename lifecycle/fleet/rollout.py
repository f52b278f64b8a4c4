"""How a fleet gets from one version to another: swap in place, or replace one by one.

A surge (the new version beside the old one) and "old and new never share a device" exclude
each other on a device that holds only one of them (ledger L46). So it is decided by what is
free: where both versions fit, each replica loads the new one beside the old, flips and
unloads (no capacity is lost); where they don't, one replica at a time is drained and started
anew while its peers serve.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from registry.errors import ConflictError

Strategy = Literal["swap", "rolling"]
Wish = Literal["auto", "swap", "rolling"]

ENGINE_BYTES = 700_000_000
"""What an engine process takes beside weights and KV cache: Python, torch, its device context."""

HEADROOM = 1.1
"""Allocators and the page cache need some room; a tenth of what is loaded."""


@dataclass(frozen=True)
class Room:
    """What a replica has free for a second version.

    Attributes:
        service: its name.
        device: where its engine is, such as ``cuda:0``.
        free_bytes: on that device; None if it could not say.
        kv_bytes: of its present KV cache; the new engine makes one of the same size.
    """

    service: str
    device: str
    free_bytes: int | None
    kv_bytes: int

    def needs(self, weight_bytes: int) -> int:
        """Bytes that a second engine with these weights takes."""
        return int((weight_bytes + self.kv_bytes) * HEADROOM) + ENGINE_BYTES

    def fits(self, weight_bytes: int) -> bool:
        """Whether it can be loaded beside the present one."""
        return self.free_bytes is not None and self.free_bytes >= self.needs(weight_bytes)


@dataclass(frozen=True)
class RolloutPlan:
    """How the version is brought out.

    Attributes:
        strategy: ``swap`` or ``rolling``.
        reason: why, for people.
        order: services, in the order in which they are changed.
    """

    strategy: Strategy
    reason: str
    order: tuple[str, ...]


def plan_rollout(
    weight_bytes: int, rooms: Collection[Room], peers: int, *, wish: Wish = "auto"
) -> RolloutPlan:
    """Choose how to change the replicas of ``rooms``.

    Args:
        weight_bytes: of the new version.
        rooms: the replicas that serve another version.
        peers: replicas in rotation behind the proxy, these included; 0 without a proxy.
        wish: what the operator asked for.

    Raises:
        ConflictError: there is no way without an interruption; names what is missing.
    """
    order = tuple(room.service for room in rooms)
    if wish == "swap":
        return RolloutPlan("swap", "asked for", order)
    tight = [room for room in rooms if not room.fits(weight_bytes)]
    if wish == "auto" and not tight:
        return RolloutPlan("swap", f"both versions fit beside each other: {_worst(rooms)}", order)
    if peers > 1:
        why = "asked for" if wish == "rolling" else _shortage(tight[0], weight_bytes)
        return RolloutPlan(
            "rolling", f"{why}; one of {peers} replicas at a time, its peers serve", order
        )
    if wish == "rolling":
        missing = "a replica can be replaced only while another one is in rotation"
    elif tight[0].free_bytes is None:
        # Nothing speaks against it but that we don't know; a load that fails changes nothing.
        return RolloutPlan(
            "swap", f"{tight[0].service} can't say what is free, and is alone", order
        )
    else:
        missing = _shortage(tight[0], weight_bytes) + ", and no other replica is in rotation"
    raise ConflictError(
        f"the version can't be brought out without an interruption: {missing}",
        where=", ".join(order),
        fix="free memory there, run a second replica (`make up REPLICAS=2`), or stop the "
        "replica and let it start with the new version",
    )


def _shortage(room: Room, weight_bytes: int) -> str:
    if room.free_bytes is None:
        return f"{room.service} can't say what is free on its device"
    return (
        f"{room.service} has {_megabytes(room.free_bytes)} free on {room.device or 'its device'} "
        f"and a second version needs {_megabytes(room.needs(weight_bytes))}"
    )


def _worst(rooms: Collection[Room]) -> str:
    room = min(rooms, key=lambda each: each.free_bytes or 0)
    return f"at least {_megabytes(room.free_bytes or 0)} free on {room.device or 'the device'}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
