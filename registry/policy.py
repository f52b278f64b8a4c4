"""What an alias demands of a version before it may point there.

``policy.json`` in the registry's folder replaces the built-in policy. It is data: one
rule an alias (``"*"`` for all others), each a list of gates and how long a result holds.
Gate results are bound to the digest of the policy they were measured under, so a
changed policy asks for fresh ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.canonical import Json, canonical
from registry.checkpoint_config import read_json
from registry.errors import CheckpointError, InputError

POLICY_FILE = "policy.json"
SPINE_GATES = ("integrity", "safe_files", "config_sanity", "loads_and_answers")
_EVERY_OTHER = "*"
_MONTH_SECONDS = 30 * 86_400


@dataclass(frozen=True)
class Rule:
    """The gates one alias demands, and how many seconds a result of theirs holds."""

    gates: tuple[str, ...]
    max_age_seconds: int


@dataclass(frozen=True)
class Policy:
    """Rules by alias; ``"*"`` stands for every alias that has none of its own."""

    rules: Mapping[str, Rule]

    def rule(self, alias: str) -> Rule:
        """Return the rule for ``alias``."""
        return self.rules.get(alias) or self.rules[_EVERY_OTHER]

    def max_age_seconds(self, gate: str) -> int:
        """Return the longest time that any rule lets a result of ``gate`` hold."""
        ages = [rule.max_age_seconds for rule in self.rules.values() if gate in rule.gates]
        return max(ages, default=_MONTH_SECONDS)

    @property
    def digest(self) -> str:
        """The sha256, in hex, of the canonical form of all rules."""
        rules: dict[str, Json] = {
            alias: {"gates": list(rule.gates), "max_age_seconds": rule.max_age_seconds}
            for alias, rule in self.rules.items()
        }
        return hashlib.sha256(canonical({"aliases": rules})).hexdigest()


DEFAULT_POLICY = Policy(
    {
        "candidate": Rule(("integrity", "safe_files"), _MONTH_SECONDS),
        _EVERY_OTHER: Rule(SPINE_GATES, _MONTH_SECONDS),
    }
)


def load_policy(root: Path) -> Policy:
    """Read ``policy.json`` of a registry, or return the built-in policy.

    Raises:
        InputError: the file is not a policy; the field that is wrong is named.
    """
    path = root / POLICY_FILE
    if not path.exists():
        return DEFAULT_POLICY
    try:
        raw = read_json(path)
    except CheckpointError as error:
        raise InputError(error.what, where=str(path), fix=error.fix) from error
    rules = raw.get("aliases") if isinstance(raw, dict) and len(raw) == 1 else None
    if not isinstance(rules, dict) or _EVERY_OTHER not in rules:
        raise InputError(
            'a policy is {"aliases": {…}} with a rule for "*"',
            where=str(path),
            fix='such as {"aliases": {"*": {"gates": ["integrity"], "max_age_seconds": 86400}}}',
        )
    return Policy({alias: _rule(alias, rule, path) for alias, rule in rules.items()})


def _rule(alias: str, raw: Any, path: Path) -> Rule:
    where = f"{path}: aliases.{alias}"
    if not isinstance(raw, dict) or set(raw) != {"gates", "max_age_seconds"}:
        raise InputError("a rule is an object of gates and max_age_seconds", where=where)
    gates, age = raw["gates"], raw["max_age_seconds"]
    if not isinstance(gates, list) or not all(isinstance(gate, str) and gate for gate in gates):
        raise InputError("gates is not a list of gate names", where=where)
    if type(age) is not int or age <= 0:
        raise InputError("max_age_seconds is not a positive integer", where=where)
    return Rule(tuple(gates), age)
