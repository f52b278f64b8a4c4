"""What a person reads of a run while it goes, and why it failed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from lifecycle.stack.follow import await_run, follow
from lifecycle.stack.graphql import DagsterClient, DagsterError, Run

KEY = "tiny@v1"


@contextmanager
def web_server(answers: list[dict[str, Any]]) -> Iterator[DagsterClient]:
    """A server that gives these GraphQL answers one after another, the last one for ever."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with DagsterClient(f"http://127.0.0.1:{server.server_port}", timeout=10) as client:
            yield client
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def runs(*results: tuple[str, str]) -> dict[str, Any]:
    found = [{"runId": run, "jobName": "job", "status": status} for run, status in results]
    return {"data": {"runsOrError": {"__typename": "Runs", "results": found}}}


def events(cursor: str, *found: dict[str, Any]) -> dict[str, Any]:
    connection = {"__typename": "EventConnection", "cursor": cursor, "hasMore": False}
    return {"data": {"logsForRun": {**connection, "events": list(found)}}}


def test_steps_and_checks_are_told_once_each_in_order() -> None:
    start = {"__typename": "ExecutionStepStartEvent", "stepKey": "model_artifact"}
    check = {
        "__typename": "AssetCheckEvaluationEvent",
        "stepKey": "gate",
        "evaluation": {"checkName": "integrity", "success": True, "description": ""},
    }
    done = {"__typename": "ExecutionStepSuccessEvent", "stepKey": "model_artifact"}
    script = [
        *(runs(("r1", "STARTED")), events("1", start), events("1")),
        *(runs(("r1", "SUCCESS")), events("2", check, done), events("2")),
    ]
    said: list[str] = []
    with web_server(script) as client:
        follow(client, Run("r1", "job", "STARTED"), KEY, "http://ui", said.append)
    assert said == ["model_artifact …", "  check integrity: passed", "model_artifact done"]


def test_a_failed_run_says_why_and_where_to_look() -> None:
    failure = {
        "__typename": "ExecutionStepFailureEvent",
        "stepKey": "promoted_version",
        "error": {
            "message": "DagsterExecutionStepExecutionError: …",
            "causes": [{"message": "PolicyError: gate integrity is missing\n"}],
        },
    }
    with (
        web_server([runs(("r1", "FAILURE")), events("1", failure), events("1")]) as client,
        pytest.raises(DagsterError) as failed,
    ):
        follow(client, Run("r1", "job", "STARTED"), KEY, "http://ui", lambda _: None)
    assert "gate integrity is missing" in failed.value.what
    assert failed.value.where == "http://ui/runs/r1"


def test_a_run_of_an_earlier_call_is_not_taken_for_the_one_awaited() -> None:
    old, new = ("old", "SUCCESS"), ("new", "STARTED")
    with web_server([runs(old), runs(old), runs(new, old)]) as client:
        run = await_run(
            client,
            "job",
            KEY,
            seconds=30,
            waiting_for="the sensor",
            say=lambda _: None,
            needless=lambda: False,
            ended={"old"},
        )
    assert run is not None
    assert run.run_id == "new"


def test_no_run_in_time_names_what_should_have_started_it() -> None:
    with web_server([runs()]) as client, pytest.raises(DagsterError) as late:
        await_run(
            client,
            "job",
            KEY,
            seconds=0.2,
            waiting_for="the sensor",
            say=lambda _: None,
            needless=lambda: False,
        )
    assert late.value.where == "the sensor"


def test_health_names_the_daemon_that_is_silent() -> None:
    def answer(**location: str) -> dict[str, Any]:
        entries = [{"loadStatus": "LOADED", "locationOrLoadError": location}]
        daemons = [
            {"daemonType": "SENSOR", "required": True, "healthy": False},
            {"daemonType": "BACKFILL", "required": False, "healthy": None},
        ]
        health = {"daemonHealth": {"allDaemonStatuses": daemons}}
        return {"data": {"workspaceOrError": {"locationEntries": entries}, "instance": health}}

    loaded = answer(__typename="RepositoryLocation")
    broken = answer(__typename="PythonError", message="ImportError: no such thing")
    with web_server([loaded, broken]) as client:
        assert client.health().summary == "no heartbeat yet of sensor"
        assert client.health().load_error == "ImportError: no such thing"


def test_a_question_the_server_does_not_understand_is_an_error() -> None:
    with (
        web_server([{"errors": [{"message": "Cannot query field"}]}]) as client,
        pytest.raises(DagsterError, match="Cannot query field"),
    ):
        client.runs("job", KEY)
