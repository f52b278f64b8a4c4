"""What the client makes of a replica that is away or answers with an error."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator

import pytest

from registry.errors import ConflictError, InputError, IronworksError
from serving.client import ReplicaClient, ReplicaUnreachableError, admin_socket_path
from tests.support.ports import free_port


class Answers(http.server.BaseHTTPRequestHandler):
    """``/v1/models`` answers with the status and body the test has set."""

    status = 200
    body = b""

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("content-length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: object) -> None:
        return None


@pytest.fixture
def client() -> Iterator[ReplicaClient]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    with ReplicaClient(f"http://127.0.0.1:{server.server_port}") as client:
        yield client
    server.shutdown()
    thread.join()
    server.server_close()


def answer(status: int, body: object) -> None:
    Answers.status = status
    Answers.body = body if isinstance(body, bytes) else json.dumps(body).encode()


def test_an_error_body_becomes_the_error_it_was_made_from(client):
    error = {"message": "m", "code": "conflict", "what": "lost", "where": "x@v1", "fix": "retry"}
    answer(409, {"error": error})
    with pytest.raises(ConflictError) as caught:
        client.models()
    assert (caught.value.what, caught.value.where, caught.value.fix) == ("lost", "x@v1", "retry")


def test_an_openai_error_without_our_fields_still_says_where(client):
    answer(503, {"error": {"message": "no engine", "type": "server_error", "code": "engine_died"}})
    with pytest.raises(IronworksError, match="no engine") as caught:
        client.models()
    assert caught.value.code == "engine_died"
    assert "/v1/models" in caught.value.where and "503" in caught.value.where


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"error": "text"}', b"\xff"])
def test_a_body_of_any_shape_is_an_error_and_not_a_trace(client, body):
    answer(502, body)
    with pytest.raises(IronworksError):
        client.models()


def test_a_replica_that_is_away_is_not_live_and_named(tmp_path):
    url = f"http://127.0.0.1:{free_port()}"
    with ReplicaClient(url, admin_socket_path(tmp_path, "gone")) as client:
        assert not client.livez() and not client.readyz()
        with pytest.raises(ReplicaUnreachableError, match=r"127\.0\.0\.1"):
            client.models()
        with pytest.raises(ReplicaUnreachableError, match=r"gone\.admin\.sock"):
            client.status()


def test_admin_calls_need_a_socket():
    with ReplicaClient("http://127.0.0.1:1") as client, pytest.raises(InputError):
        client.status()
