"""What a person may type to name a model, a version or an alias."""

from __future__ import annotations

import re

from registry.errors import InputError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ALIAS = re.compile(r"[a-z][a-z0-9_-]{0,63}")
MIN_PREFIX = 12


def check_name(field: str, value: str) -> str:
    """Return a valid model or version name.

    Raises:
        InputError: it is not 1 to 128 letters, digits, dots, dashes or underscores.
    """
    if not _NAME.fullmatch(value):
        raise InputError(
            f"{value[:60]!r} is not a {field} name",
            where=field,
            fix="use letters, digits, '.', '-' and '_', beginning with a letter or digit",
        )
    return value


def check_alias(value: str) -> str:
    """Return a valid alias.

    Raises:
        InputError: it is not lower-case letters, digits, dashes or underscores.
    """
    if not _ALIAS.fullmatch(value):
        raise InputError(
            f"{value[:60]!r} is not an alias",
            where="alias",
            fix="use lower-case letters, digits, '-' and '_', such as production",
        )
    return value


def split_reference(ref: str) -> tuple[str, str] | str:
    """Split ``model@version``, or return a digest (or a prefix of one) as it is.

    Raises:
        InputError: it is neither.
    """
    if "@" in ref:
        model, _, version = ref.partition("@")
        return check_name("model", model), check_name("version", version)
    if not re.fullmatch(rf"[0-9a-f]{{{MIN_PREFIX},64}}", ref):
        raise InputError(
            f"{ref[:80]!r} names no version",
            where="version",
            fix=f"use model@version, or at least {MIN_PREFIX} hex digits of its digest",
        )
    return ref
