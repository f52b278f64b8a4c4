"""The commands ``ironworks registry …`` and ``ironworks audit …``."""

from registry.cli.audit_commands import audit_app
from registry.cli.registry_commands import registry_app

__all__ = ["audit_app", "registry_app"]
