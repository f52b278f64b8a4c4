"""JSON log lines, one event a line, with nothing in them that a user wrote.

Prompts and answers never reach a log call. The one way they could slip in is the text of
an exception (``invalid literal for int(): '…'``), so exceptions are logged as their types
and the places they passed through, without their messages and without local variables.
"""

from __future__ import annotations

import logging
import sys
import traceback
from types import TracebackType
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from registry.errors import IronworksError


def configure_logging(service: str, *, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send structlog's and the standard library's records to ``stream`` as JSON lines.

    Args:
        service: name put on every line, e.g. ``replica-8000``.
        level: lowest level written.
        stream: where to; standard error by default.
    """

    def add_service(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {"service": service, **event}

    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        add_service,
        redact_exception,
    ]
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def redact_exception(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace ``exc_info`` by ``exception`` and ``stack``: types and places, no messages."""
    info = event.pop("exc_info", None)
    if not info:
        return event
    error = info if isinstance(info, BaseException) else _current(info)
    if error is not None:
        event["exception"] = describe_exception(error)
        event["stack"] = describe_stack(error)
    return event


def describe_exception(error: BaseException) -> str:
    """Type of ``error``; of our own errors also what they say, which quotes no input."""
    name = type(error).__qualname__
    return f"{name}: {error}" if isinstance(error, IronworksError) else name


def describe_stack(error: BaseException) -> list[str]:
    """``file:line function`` of each frame, oldest first, causes before their effects."""
    lines: list[str] = []
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        lines = [*describe_stack(cause), f"{type(cause).__qualname__} led to"]
    return lines + [
        f"{frame.filename}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
    ]


def _current(
    info: bool | tuple[type[BaseException], BaseException, TracebackType | None],
) -> BaseException | None:
    return info[1] if isinstance(info, tuple) else sys.exc_info()[1]
