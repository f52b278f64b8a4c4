"""Answers as a replica would: its admin socket and its metrics, with given numbers."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

GIB = 1 << 30
DIGEST = "ab" * 32


class ScriptedReplica:
    """What the replica says now.

    Args:
        engine_pid: of its one engine.
    """

    def __init__(self, engine_pid: int) -> None:
        self.port = 0
        self.waiting = 0
        self.engine: dict[str, Any] = {
            "version": "llama@v1",
            "digest": DIGEST,
            "pid": engine_pid,
            "resident_bytes": 3 * GIB,
            "device_bytes": 20 * GIB,
            "device_allocated_bytes": 19 * GIB,
            "weight_bytes": 14 * GIB,
            "kv_bytes": 5 * GIB,
            "leases": 0,
        }

    def answer(self, path: str) -> str | None:
        if path == "/debug/memory":
            return json.dumps({"api": {}, "engines": [self.engine], "host": {}, "devices": []})
        if path == "/metrics":
            return (
                f'ironworks_num_requests_waiting{{model_name="llama"}} {self.waiting}.0\n'
                'ironworks_kv_cache_usage_perc{model_name="llama"} 0.25\n'
            )
        return None

    @contextmanager
    def serve(self, admin_socket: Path) -> Iterator[None]:
        """Answer at the socket, and at a free TCP port, ``port``."""
        replica = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = replica.answer(self.path)
                body = (text or "").encode()
                self.send_response(200 if text is not None else 404)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

            def address_string(self) -> str:
                return "local"

        admin_socket.parent.mkdir(parents=True, exist_ok=True)
        admin_socket.unlink(missing_ok=True)
        public = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = public.server_address[1]
        with public, socketserver.ThreadingUnixStreamServer(str(admin_socket), Handler) as admin:
            for server in (public, admin):
                server.daemon_threads = True
                threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            try:
                yield
            finally:
                public.shutdown()
                admin.shutdown()
                admin_socket.unlink(missing_ok=True)
