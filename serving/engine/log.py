"""The engine's log: one JSON object a line on standard error, where the API's log goes.

Events carry counts, phases and error types; never tokens, text or tensors.
"""

from __future__ import annotations

import os
import sys

import structlog


def configure_logging() -> None:
    """Send every structlog logger of this process to standard error as JSON lines."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    structlog.contextvars.bind_contextvars(process="engine", pid=os.getpid())
