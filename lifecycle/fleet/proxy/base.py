"""What the fleet asks of a proxy, whichever it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from registry.errors import IronworksError

Rotation = Literal["ready", "drain", "maint"]


class ProxyError(IronworksError):
    """The proxy does not answer, or refuses what it was told."""

    code = "proxy"


@dataclass(frozen=True)
class ProxyServer:
    """One replica as the proxy sees it.

    Attributes:
        service: the replica's name.
        host: address that requests are sent to.
        port: TCP port that requests are sent to.
        rotation: what the proxy was told: ``ready`` gets requests, ``drain`` ends those
            it has, ``maint`` is out.
        up: whether its health check passes (it may be told ``ready`` and be down).
        weight: share of the load, 0 to 256.
        sessions: requests that it works on now.
        failed_checks: health checks failed since the proxy started.
        reason: what the last health check found, in the proxy's words.
    """

    service: str
    host: str
    port: int
    rotation: Rotation
    up: bool
    weight: int
    sessions: int
    failed_checks: int = 0
    reason: str = ""

    @property
    def in_rotation(self) -> bool:
        """Whether new requests reach it now."""
        return self.rotation == "ready" and self.up and self.weight > 0


class ProxyClient(Protocol):
    """Steers one proxy; every call opens and closes its own connection.

    All raise `ProxyError` when the proxy does not answer within its deadline or refuses.
    """

    def servers(self) -> Mapping[str, ProxyServer]:
        """The replicas it knows, by service."""
        ...

    def add(self, service: str, host: str, port: int, weight: int) -> None:
        """Make a replica known, out of rotation; no-op if it is known."""
        ...

    def remove(self, service: str) -> None:
        """Forget a replica that is out of rotation; no-op if it is unknown."""
        ...

    def ready(self, service: str, *, weight: int) -> None:
        """Send requests to it as long as its health check passes."""
        ...

    def drain(self, service: str) -> None:
        """Send no new requests to it; those under way end."""
        ...

    def sessions(self, service: str) -> int:
        """Requests that it works on now; 0 if it is unknown."""
        ...
