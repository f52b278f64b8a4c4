"""Canonical JSON: one text for one value, so that it can be hashed.

A subset of RFC 8785 (JCS) on which JCS needs no number formatting and no UTF-16
sorting: keys are ASCII, numbers are integers within ±(2^53 - 1), there are no floats.
Inside the subset the bytes are those of RFC 8785 (tested against ``rfc8785``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from registry.errors import InputError

ALLOWED = "null, true/false, integers, strings, lists and objects"
MAX_INTEGER = 2**53 - 1

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)

Json = None | bool | int | str | Sequence["Json"] | Mapping[str, "Json"]


def canonical(value: Json) -> bytes:
    """Return the canonical UTF-8 text of ``value``.

    Raises:
        InputError: a float, a non-ASCII key, an integer beyond 2^53 - 1, a lone
            surrogate, or a value that isn't JSON; ``where`` is its path in ``value``.
    """
    _check(value, "$")
    return _ENCODER.encode(value).encode()


def _check(value: object, where: str) -> None:
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise InputError(
                "an integer is beyond 2^53 - 1", where=where, fix="write it as a decimal string"
            )
    elif isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                "a string holds a lone surrogate (not valid UTF-8)", where=where
            ) from error
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str) or not key.isascii():
                raise InputError("an object key is not an ASCII string", where=where)
            _check(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            _check(item, f"{where}[{number}]")
    else:
        raise InputError(
            f"{type(value).__name__} has no canonical form",
            where=where,
            fix=f"use {ALLOWED}; write a fraction as an integer of a smaller unit",
        )
