"""Where the replicas of a state folder are: one on the public port, or several behind a proxy."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import get_args

from lifecycle.fleet.proxy.config import Balance, ProxySettings
from registry.errors import InputError
from registry.fleet import DesiredReplica

REPLICAS_VARIABLE = "IRONWORKS_REPLICAS"
BALANCE_VARIABLE = "IRONWORKS_PROXY_BALANCE"

MAX_REPLICAS = 64


@dataclass(frozen=True)
class FleetLayout:
    """The addresses of a fleet.

    Attributes:
        host: address that everything listens on.
        port: TCP port that clients use: of the replica, or of the proxy.
        replicas: how many to begin with; more than one means a proxy on ``port`` and the
            replicas on the ports after it.
        service: name of a single replica; empty: ``replica-<port>``.
        balance: how the proxy chooses.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    replicas: int = 1
    service: str = ""
    balance: Balance = "leastconn"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> FleetLayout:
        """Read the variables that ``make up`` sets for every process of the stack.

        Args:
            environment: by default this process's own.

        Raises:
            InputError: one of them is not acceptable.
        """
        variables = os.environ if environment is None else environment
        balance = variables.get(BALANCE_VARIABLE) or "leastconn"
        if balance not in get_args(Balance):
            raise InputError(
                f"{balance[:40]!r} is not a way to balance",
                where=BALANCE_VARIABLE,
                fix=f"use one of {', '.join(get_args(Balance))}",
            )
        return cls(
            host=variables.get("IRONWORKS_HOST") or "127.0.0.1",
            port=_number(variables, "IRONWORKS_PORT", 8000, 65535),
            replicas=_number(variables, REPLICAS_VARIABLE, 1, MAX_REPLICAS),
            service=variables.get("IRONWORKS_SERVICE", ""),
            balance=balance,  # type: ignore[arg-type]
        )

    @property
    def proxied(self) -> bool:
        """Whether clients talk to a proxy."""
        return self.replicas > 1

    @property
    def proxy(self) -> ProxySettings | None:
        """How the proxy listens and chooses; None without one."""
        return ProxySettings(self.host, self.port, self.balance) if self.proxied else None

    def initial(self, model: str, alias: str) -> list[DesiredReplica]:
        """The replicas to begin with."""
        if not self.proxied:
            service = self.service or f"replica-{self.port}"
            return [DesiredReplica(service, self.host, self.port, model, alias)]
        return [self._at(self.port + n, model, alias) for n in range(1, self.replicas + 1)]

    def another(self, desired: Collection[DesiredReplica]) -> DesiredReplica:
        """One more replica like those declared, on the first port that is not declared.

        Raises:
            InputError: there is no proxy, nothing to be like, or no port left.
        """
        if not self.proxied or not desired:
            raise InputError(
                "a single replica has no proxy that another could stand behind",
                where=REPLICAS_VARIABLE,
                fix="`make down`, then `make up REPLICAS=2`",
            )
        taken = {replica.port for replica in desired if replica.host == self.host}
        like = next(iter(desired))
        for port in range(self.port + 1, self.port + 1 + MAX_REPLICAS):
            if port not in taken:
                return self._at(port, like.model, like.alias)
        raise InputError("every port of the fleet is taken", where=f"from {self.port + 1}")

    def holds(self, replica: DesiredReplica) -> bool:
        """Whether a declared replica can stand in this layout, or is of another one."""
        return replica.host != self.host or (replica.port == self.port) != self.proxied

    @property
    def settings(self) -> Mapping[str, str]:
        """What every replica of this layout is told, beside its own address."""
        return {"IRONWORKS_BEHIND_PROXY": "true"} if self.proxied else {}

    def _at(self, port: int, model: str, alias: str) -> DesiredReplica:
        return DesiredReplica(f"replica-{port}", self.host, port, model, alias)


def _number(variables: Mapping[str, str], variable: str, default: int, largest: int) -> int:
    text = variables.get(variable) or str(default)
    if not text.isdecimal() or not 1 <= int(text) <= largest:
        raise InputError(
            f"{text[:20]!r} is not a number from 1 to {largest}",
            where=variable,
            fix=f"such as {default}",
        )
    return int(text)
