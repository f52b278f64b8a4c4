"""A real HAProxy in front of small HTTP servers: which of them gets what."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from lifecycle.fleet.proxy.base import ProxyError
from lifecycle.fleet.proxy.config import Balance, ProxySettings
from lifecycle.fleet.proxy.process import HAProxyProcess, find_haproxy
from registry.errors import InputError
from registry.fleet import DesiredReplica
from registry.paths import StatePaths
from tests.support.ports import free_port


@dataclass
class Backend:
    """A server that is ready or not, and notes who asked."""

    name: str
    ready: bool = True
    bodies: list[dict[str, object]] = field(default_factory=list)

    def serve(self) -> ThreadingHTTPServer:
        backend = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200 if backend.ready else 503)

            def do_POST(self) -> None:
                size = int(self.headers["content-length"])
                backend.bodies.append(json.loads(self.rfile.read(size)))
                self._answer(200)

            def _answer(self, status: int) -> None:
                text = backend.name.encode()
                self.send_response(status)
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server


@dataclass
class Site:
    proxy: HAProxyProcess
    backends: list[Backend]
    replicas: list[DesiredReplica]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.proxy.settings.port}"

    def await_up(self, count: int) -> None:
        deadline = time.monotonic() + 20
        while sum(server.in_rotation for server in self.proxy.client.servers().values()) != count:
            assert time.monotonic() < deadline, self.proxy.client.servers()
            time.sleep(0.05)


@pytest.fixture(params=["leastconn", "prefix"])
def balance(request: pytest.FixtureRequest) -> Balance:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def site(tmp_path: Path, balance: Balance) -> Iterator[Site]:
    paths = StatePaths(tmp_path / "state").create()
    backends = [Backend(f"replica-{number}") for number in range(3)]
    servers = [backend.serve() for backend in backends]
    replicas = [
        DesiredReplica(backend.name, "127.0.0.1", server.server_address[1], "demo")
        for backend, server in zip(backends, servers, strict=True)
    ]
    proxy = HAProxyProcess(paths, ProxySettings("127.0.0.1", free_port(), balance))
    site = Site(proxy, backends, replicas)
    assert proxy.ensure(replicas)
    try:
        yield site
    finally:
        proxy.stop()
        for server in servers:
            server.shutdown()
            server.server_close()


def ask(site: Site, text: str) -> str:
    body = {"messages": [{"role": "system", "content": text}], "model": "demo"}
    answer = httpx.post(f"{site.url}/v1/chat/completions", json=body, trust_env=False)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_drained_forgotten_and_introduced_servers(site: Site) -> None:
    first, second, third = site.replicas
    client = site.proxy.client
    site.await_up(3)
    assert not site.proxy.ensure(site.replicas), "it runs already"
    for gone in (first, second):
        client.drain(gone.service)
    assert {ask(site, f"text {n}") for n in range(8)} == {third.service}
    client.remove(first.service)
    client.remove(first.service)
    assert first.service not in client.servers()
    client.add(first.service, first.host, first.port, 50)
    client.add(first.service, first.host, first.port, 50)
    known = client.servers()[first.service]
    assert (known.rotation, known.weight) == ("maint", 50)
    client.ready(first.service, weight=256)
    client.drain(third.service)
    site.await_up(1)
    assert {ask(site, f"text {n}") for n in range(8)} == {first.service}
    with pytest.raises(ProxyError, match="No such server"):
        client.drain("stranger")


def test_requests_that_begin_alike_go_to_one_replica_only_under_prefix(
    site: Site, balance: Balance
) -> None:
    site.await_up(3)
    homes = {text: {ask(site, text) for _ in range(6)} for text in ("aaa", "bbb", "ccc", "ddd")}
    if balance == "prefix":
        assert all(len(home) == 1 for home in homes.values())
    else:
        assert any(len(home) > 1 for home in homes.values())


def test_a_replica_that_is_not_ready_gets_nothing_and_none_gives_a_plain_error(
    site: Site,
) -> None:
    site.await_up(3)
    for backend in site.backends[:2]:
        backend.ready = False
    site.await_up(1)
    assert {ask(site, f"text {n}") for n in range(6)} == {site.backends[2].name}
    site.backends[2].ready = False
    site.await_up(0)
    answer = httpx.post(f"{site.url}/v1/chat/completions", json={}, trust_env=False)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "no_replica"
    assert answer.headers["retry-after"] == "1"


def test_a_body_that_no_buffer_holds_still_arrives_whole(site: Site) -> None:
    site.await_up(3)
    ask(site, "x" * 1_000_000)
    (body,) = [body for backend in site.backends for body in backend.bodies]
    assert len(json.dumps(body)) > 1_000_000


def test_what_it_is_told_survives_in_its_configuration(site: Site) -> None:
    first, *others = site.replicas
    drained = DesiredReplica(**{**vars(first), "state": "drained"})
    site.proxy.configure([drained, *others])
    site.proxy.stop()
    assert site.proxy.ensure([drained, *others])
    site.await_up(2)
    assert site.proxy.client.servers()[first.service].rotation == "maint"


def test_a_taken_port_is_refused_with_its_holder(tmp_path: Path, site: Site) -> None:
    paths = StatePaths(tmp_path / "other").create()
    other = HAProxyProcess(paths, ProxySettings("127.0.0.1", site.proxy.settings.port))
    with pytest.raises(InputError, match=r"can't be used.*haproxy"):
        other.ensure(site.replicas)


def test_a_machine_without_haproxy_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_haproxy().version[0].isdigit()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProxyError) as missing:
        find_haproxy(also=())
    assert "apt-get install haproxy" in missing.value.fix
