"""The one shape of error that every plane raises, prints and returns.

An error says what was wrong, where, and what to do. The command line prints it and
exits with 2 (``ironworks.main``); the HTTP tier maps it to OpenAI's error object
(``serving.api.errors``). Nothing else needs to know more than these attributes.
"""

from __future__ import annotations


class IronworksError(Exception):
    """A failure that a person can act on.

    Args:
        what: what was wrong, one sentence without a full stop; never echoes large input.
        where: the file, field, table or address concerned ("" when there is none).
        fix: what to do about it ("" when nothing useful can be said).
    """

    code = "error"

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        text = self.what
        if self.where:
            text += f" ({self.where})"
        if self.fix:
            text += f"; {self.fix}"
        return text

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments are lost by the default pickling of exceptions.
        return (_rebuild, (type(self), self.what, self.where, self.fix))


def _rebuild(cls: type[IronworksError], what: str, where: str, fix: str) -> IronworksError:
    return cls(what, where=where, fix=fix)


class InputError(IronworksError):
    """An argument, a field or a file given by the user is not acceptable."""

    code = "invalid_input"


class CheckpointError(InputError):
    """A model directory is incomplete, damaged or unsafe to load."""

    code = "bad_checkpoint"


class NotFoundError(IronworksError):
    """A model, version, alias or load that was named does not exist."""

    code = "not_found"


class ConflictError(IronworksError):
    """A compare-and-set lost: the state is not what the caller expected."""

    code = "conflict"


class PolicyError(IronworksError):
    """The promotion policy refuses: a gate is missing, failed or expired."""

    code = "refused_by_policy"


class IntegrityError(IronworksError):
    """Stored bytes or log rows do not match their recorded digest."""

    code = "integrity"


class DatabaseError(IronworksError):
    """The registry database can't be used: wrong revision, locked, read-only or full."""

    code = "database"
