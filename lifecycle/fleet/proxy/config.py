"""HAProxy's configuration, written from the desired state.

The file always says what should be, so that a proxy that is started anew, by whomever, comes
back right. A proxy that runs is told each change over its socket and is never reloaded: a
reload forgets its state and hides the requests that the old process still works on.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from registry.fleet import DesiredReplica

BACKEND = "replicas"

Balance = Literal["leastconn", "prefix"]

BUFFER_BYTES = 64 * 1024
"""Largest request that can be sent again to a peer: HAProxy retries from this buffer."""

ANSWER_SECONDS = 900
"""Longest silence of a replica in the middle of an answer."""

PREFIX_BYTES = 512
"""How much of the first message decides where a request goes under ``prefix``."""

BOUNDED_LOAD_PERCENT = 150
"""A replica with more than this share of the mean load passes its prefixes on.

Consistent hashing with bounded loads, https://arxiv.org/abs/1608.01350.
"""

_NO_REPLICA = (
    '{"error":{"message":"no replica is ready; try again in a moment",'
    '"type":"server_error","param":null,"code":"no_replica"}}'
)


@dataclass(frozen=True)
class ProxySettings:
    """How the proxy listens and chooses.

    Attributes:
        host: address it listens on.
        port: TCP port it listens on.
        balance: ``leastconn``: the replica with the fewest requests. ``prefix``: requests
            that begin alike go to the same replica, whose cache has seen that beginning.
        max_connections: clients at once.
        threads: of HAProxy.
    """

    host: str
    port: int
    balance: Balance = "leastconn"
    max_connections: int = 4096
    threads: int = 2


def render(
    settings: ProxySettings,
    replicas: Collection[DesiredReplica],
    *,
    socket: str,
    exports_metrics: bool,
) -> str:
    """Return the configuration file.

    Args:
        settings: how it listens and chooses.
        replicas: the desired state.
        socket: path of the runtime socket, from the folder that HAProxy is started in.
        exports_metrics: whether this HAProxy was built with its Prometheus exporter.
    """
    metrics = (
        "    http-request use-service prometheus-exporter if { path /metrics }"
        if exports_metrics
        else "    http-request return status 404 if { path /metrics }"
    )
    # More tries than replicas: one that was left in the meantime costs one try.
    retries = max(3, len(replicas) + 1)
    return "\n".join(
        [
            "# Written by Ironworks from the desired state of the fleet; changes are lost.",
            "global",
            f"    stats socket unix@{socket} mode 600 level admin",
            "    stats timeout 10s",
            f"    maxconn {settings.max_connections}",
            f"    nbthread {settings.threads}",
            f"    tune.bufsize {BUFFER_BYTES}",
            "    log stdout format raw local0 info",
            "",
            "defaults",
            "    mode http",
            "    log global",
            "    option httplog",
            # Each replica logs each of its requests; here only what went wrong.
            "    option dontlog-normal",
            "    timeout connect 2s",
            "    timeout http-request 30s",
            "    timeout http-keep-alive 60s",
            f"    timeout client {ANSWER_SECONDS}s",
            f"    timeout server {ANSWER_SECONDS}s",
            "    timeout queue 10s",
            # A request can be repeated until its first token has come: it changes nothing.
            # HAProxy repeats only what it held whole when it sent it first.
            "    option http-buffer-request",
            "    option redispatch 1",
            f"    retries {retries}",
            "    retry-on conn-failure empty-response 503",
            # A kept connection may just be closed by the replica; a large body sent on it
            # could not be repeated.
            "    http-reuse never",
            f"    http-error status 503 content-type application/json string '{_NO_REPLICA}' "
            "hdr retry-after 1",
            "",
            "frontend api",
            f"    bind {settings.host}:{settings.port}",
            metrics,
            f"    default_backend {BACKEND}",
            "",
            f"backend {BACKEND}",
            *_balance(settings.balance),
            # Every replica was full: now it is the client's turn to wait.
            "    http-response set-status 429 if { res.hdr(x-overloaded) -m found }",
            "    http-response del-header x-overloaded",
            "    option httpchk GET /readyz",
            "    http-check expect status 200",
            # Never on-marked-down shutdown-sessions: a replica that drains is not ready, and
            # the answers that it still writes must end.
            f"    default-server {CHECK}",
            *(_server(replica) for replica in replicas),
            "",
        ]
    )


CHECK = "inter 1s fastinter 200ms downinter 500ms fall 2 rise 1"
"""Health checks: out of rotation about 1.2 s after the first failure, back after one success."""


def _balance(balance: Balance) -> list[str]:
    if balance == "leastconn":
        return ["    balance leastconn"]
    first = f"bytes(0,{PREFIX_BYTES})"
    return [
        f"    http-request set-var(txn.prefix) req.body,json_query('$.messages[0].content'),{first}"
        " if METH_POST",
        f"    http-request set-var(txn.prefix) req.body,json_query('$.prompt'),{first}"
        " if METH_POST !{ var(txn.prefix) -m found }",
        "    balance hash var(txn.prefix)",
        "    hash-type consistent",
        f"    hash-balance-factor {BOUNDED_LOAD_PERCENT}",
    ]


def _server(replica: DesiredReplica) -> str:
    line = f"    server {replica.service} {replica.host}:{replica.port} check"
    line += f" weight {replica.weight}"
    return line if replica.state == "running" else f"{line} disabled"
