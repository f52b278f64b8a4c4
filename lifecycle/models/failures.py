"""Errors of the other planes as Dagster failures that read like a sentence, not a trace."""

from collections.abc import Iterator
from contextlib import contextmanager

from dagster import Failure

from registry.errors import IronworksError


@contextmanager
def plain_failures() -> Iterator[None]:
    """Turn an ``IronworksError`` of the body into a ``Failure`` with the same three parts.

    Never retried: what it names needs a person, or another version.
    """
    try:
        yield
    except IronworksError as error:
        parts = {"what": error.what, "where": error.where, "fix": error.fix, "code": error.code}
        raise Failure(
            description=str(error),
            metadata={name: text for name, text in parts.items() if text},
            allow_retries=False,
        ) from None
