from __future__ import annotations

import contextlib
import stat

import pytest

from registry.errors import InputError
from serving.sockets import bind_admin, bind_tcp
from tests.support.ports import free_port


def test_a_port_in_use_is_a_plain_error():
    with contextlib.closing(bind_tcp("127.0.0.1", free_port())) as first:
        port = first.getsockname()[1]
        with pytest.raises(InputError, match="in use") as caught:
            bind_tcp("127.0.0.1", port)
        assert caught.value.where == f"127.0.0.1:{port}"


def test_an_unknown_or_foreign_host_is_a_plain_error():
    with pytest.raises(InputError, match="can't listen"):
        bind_tcp("192.0.2.1", free_port())
    with pytest.raises(InputError, match="host name"):
        bind_tcp("no host", free_port())


def test_the_admin_socket_is_private_and_taken_once(tmp_path):
    path = tmp_path / "replica.admin.sock"
    with contextlib.closing(bind_admin(path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(InputError, match="runs already"):
            bind_admin(path)
    # What a killed replica leaves behind doesn't stop the next one.
    assert path.exists()
    bind_admin(path).close()
