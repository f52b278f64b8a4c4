"""``python -m serving.engine.process --socket PATH``: one engine process.

It lives for one model of one API process. It ends when the API says so, when the
connection ends and when its parent dies; never by a signal meant for the API's process
group, since the API decides when its requests have been drained.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
from pathlib import Path

import structlog

from serving.engine.channel import Channel, PeerGone
from serving.engine.environment import prepare_environment
from serving.telemetry.logging import configure_logging

log = structlog.get_logger(__name__)

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> int:
    """Connect, load, serve; the process's exit status (0 = was asked to end)."""
    parser = argparse.ArgumentParser(description="One engine process; started by the API.")
    parser.add_argument("--socket", type=Path, required=True, help="the API's listening socket")
    path = parser.parse_args().socket
    die_with_parent()
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(ignored, signal.SIG_IGN)
    configure_logging("engine")
    structlog.contextvars.bind_contextvars(pid=os.getpid())
    prepare_environment()
    try:
        channel = Channel.connect(path)
    except OSError as error:
        log.error("nobody listens", socket=str(path), error=error.strerror)
        return 1
    return _run(channel)


def _run(channel: Channel) -> int:
    # torch and transformers take seconds to import: only after the API knows who connected.
    from transformers.utils import logging as transformers_logging

    from serving.engine.service import EngineService, LoadRefused, ShutdownRequested

    # Its warnings become lines of our log, instead of free text between them.
    transformers_logging.disable_default_handler()
    transformers_logging.enable_propagation()
    try:
        EngineService(channel).run()
    except (ShutdownRequested, PeerGone) as ended:
        log.info("engine ends", why=type(ended).__name__)
        return 0
    except LoadRefused:
        return 2
    except Exception:
        log.exception("engine ends by an error of its own")
        return 1
    return 0


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies, however it dies."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it died before the call
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
