"""A log line is one JSON object, and no words of a user's reach it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from registry.errors import InputError
from serving.telemetry.logging import configure_logging

SECRET = "the user's own words"


@pytest.fixture
def lines() -> Iterator[Any]:
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    stream = io.StringIO()
    configure_logging("replica-1", stream=stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logging.getLogger().handlers[:] = handlers
    logging.getLogger().setLevel(level)
    structlog.reset_defaults()


def fail() -> None:
    try:
        int(SECRET)
    except ValueError as error:
        raise RuntimeError(f"failed on {SECRET}") from error


def test_both_kinds_of_logger_write_one_json_object_a_line(lines: Any) -> None:
    structlog.get_logger("ours").info("loaded", bytes=5, text="two\nlines")
    logging.getLogger("uvicorn.error").warning("listening on %s", "a socket")
    logging.getLogger("uvicorn.error").debug("not at this level")
    ours, theirs = lines()
    assert (ours["event"], ours["bytes"], ours["level"]) == ("loaded", 5, "info")
    assert (theirs["event"], theirs["logger"]) == ("listening on a socket", "uvicorn.error")
    assert all(line["service"] == "replica-1" and line["ts"].endswith("Z") for line in lines())


@pytest.mark.parametrize("log", [structlog.get_logger("ours"), logging.getLogger("theirs")])
def test_an_exception_is_logged_as_its_type_and_places(lines: Any, log: Any) -> None:
    try:
        fail()
    except RuntimeError:
        log.exception("request failed")
    (line,) = lines()
    assert SECRET not in json.dumps(line)
    assert line["exception"] == "RuntimeError"
    assert any(place.endswith(" fail") for place in line["stack"])
    assert "ValueError led to" in line["stack"]


def test_our_own_errors_say_what_they_are(lines: Any) -> None:
    error = InputError("a field is missing", where="model", fix="add it")
    structlog.get_logger("ours").error("refused", exc_info=error)
    (line,) = lines()
    assert line["exception"] == "InputError: a field is missing (model); add it"
