"""A port that is taken is an error that a person can act on."""

from __future__ import annotations

import os
import socket

import pytest

from lifecycle.fleet.ports import require_free
from registry.errors import InputError
from tests.support.ports import free_port


def test_a_free_port_passes() -> None:
    require_free("127.0.0.1", free_port(), setting="PORT")


def test_a_taken_port_names_the_holder_and_the_setting() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        port = server.getsockname()[1]
        with pytest.raises(InputError) as refused:
            require_free("127.0.0.1", port, setting="DAGSTER_PORT")
    assert f"port {port}" in refused.value.what
    assert f"pid {os.getpid()}" in refused.value.what
    assert "DAGSTER_PORT" in refused.value.fix
