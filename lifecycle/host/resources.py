"""What the host's assets and jobs work with: the machine."""

import socket
from pathlib import Path

from dagster import ConfigurableResource

from lifecycle.host.host import Host, this_host


class HostResource(ConfigurableResource):  # type: ignore[type-arg]
    """The machine that this process runs on."""

    root: str = ""
    """Empty: ``IRONWORKS_HOST_ROOT``, or "/"."""

    @property
    def name(self) -> str:
        """Under which it appears in the audit log and in concurrency tags."""
        return socket.gethostname()

    def host(self) -> Host:
        """The machine, to look at and act on."""
        return Host(Path(self.root)) if self.root else this_host()
