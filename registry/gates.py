"""Results of promotion gates, each bound to a version and to the policy of its time."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from sqlalchemy import Connection, func, insert, select

from registry.audit import AuditLog, check_text
from registry.canonical import canonical
from registry.clock import iso, now_us
from registry.database import Database
from registry.errors import InputError
from registry.policy import Policy
from registry.schema import gate_result
from registry.versions import Versions

Outcome = Literal["pass", "fail", "inconclusive"]
Number = int | str | bool

_GATE = re.compile(r"[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True)
class GateResult:
    """What one gate said of one version. ``digest`` and ``policy`` are hex."""

    id: int
    digest: str
    gate: str
    outcome: Outcome
    numbers: Mapping[str, Number]
    policy: str
    recorded_us: int
    expires_us: int
    actor: str
    run_id: str


class Gates:
    """Records gate results and judges them."""

    def __init__(self, database: Database, audit: AuditLog, versions: Versions) -> None:
        self._database = database
        self._audit = audit
        self._versions = versions

    def record(
        self,
        ref: str,
        *,
        gate: str,
        outcome: Outcome,
        numbers: Mapping[str, Number],
        policy: Policy,
        actor: str,
        run_id: str,
    ) -> GateResult:
        """Record one result, with its event ``gate.recorded``.

        Raises:
            NotFoundError: there is no such version.
            InputError: the gate's name, the outcome or a number is malformed.
        """
        if not _GATE.fullmatch(gate):
            raise InputError(f"{gate[:60]!r} is not a gate's name", where="gate")
        if outcome not in get_args(Outcome):
            raise InputError(
                f"{str(outcome)[:40]!r} is not an outcome",
                where="outcome",
                fix=f"use one of {', '.join(get_args(Outcome))}",
            )
        check_text("run_id", run_id)
        text = canonical(numbers).decode()
        with self._database.write() as connection:
            found = self._versions.get(ref, connection)
            last = connection.execute(select(func.max(gate_result.c.id))).scalar()
            number = (last or 0) + 1
            expires_us = now_us() + policy.max_age_seconds(gate) * 1_000_000
            event = self._audit.append(
                connection,
                kind="gate.recorded",
                actor=actor,
                subject=found.digest,
                body={
                    "id": number,
                    "gate": gate,
                    "outcome": outcome,
                    "numbers": dict(numbers),
                    "policy": policy.digest,
                    "expires_us": expires_us,
                    "run_id": run_id,
                },
            )
            values = {
                "id": number,
                "digest": bytes.fromhex(found.digest),
                "gate": gate,
                "outcome": outcome,
                "numbers": text,
                "policy": bytes.fromhex(policy.digest),
                "recorded_us": event.ts_us,
                "expires_us": expires_us,
                "actor": actor,
                "run_id": run_id,
            }
            connection.execute(insert(gate_result).values(values))
            row = connection.execute(select(gate_result).where(gate_result.c.id == number)).one()
            return _result_of(row)

    def all(self, ref: str) -> list[GateResult]:
        """Return all results of a version, oldest first.

        Raises:
            NotFoundError: there is no such version.
        """
        with self._database.read() as connection:
            return self.of_version(self._versions.get(ref, connection).digest, connection)

    def of_version(self, digest: str, connection: Connection) -> list[GateResult]:
        """Return all results of the version with this digest, oldest first."""
        query = (
            select(gate_result)
            .where(gate_result.c.digest == bytes.fromhex(digest))
            .order_by(gate_result.c.id)
        )
        return [_result_of(row) for row in connection.execute(query)]


@dataclass(frozen=True)
class Judgement:
    """Which results let a version through, and each reason why it may not pass."""

    used: tuple[GateResult, ...]
    reasons: tuple[str, ...]


def judge(results: list[GateResult], policy: Policy, alias: str, at_us: int) -> Judgement:
    """Compare the newest result of each demanded gate with the policy for ``alias``."""
    rule = policy.rule(alias)
    newest = {result.gate: result for result in results}
    used, reasons = [], []
    for gate in rule.gates:
        result = newest.get(gate)
        if result is None:
            reasons.append(f"{gate}: no result")
            continue
        expires_us = min(result.expires_us, result.recorded_us + rule.max_age_seconds * 1_000_000)
        if result.policy != policy.digest:
            reasons.append(f"{gate}: measured under another policy ({result.policy[:12]})")
        elif result.outcome != "pass":
            reasons.append(f"{gate}: {result.outcome}")
        elif expires_us <= at_us:
            reasons.append(f"{gate}: expired at {iso(expires_us)}")
        else:
            used.append(result)
    return Judgement(tuple(used), tuple(reasons))


def _result_of(row: Any) -> GateResult:
    return GateResult(
        id=row.id,
        digest=row.digest.hex(),
        gate=row.gate,
        outcome=row.outcome,
        numbers=json.loads(row.numbers),
        policy=row.policy.hex(),
        recorded_us=row.recorded_us,
        expires_us=row.expires_us,
        actor=row.actor,
        run_id=row.run_id,
    )
