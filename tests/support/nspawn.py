"""A real systemd as PID 1 of a container made of this machine's own file system.

Nothing outside changes: the root is an overlay that is thrown away, the network is its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from lifecycle.stack.settings import REPOSITORY

BOOT = """
set -e
mount --bind / "$1/root"
exec systemd-nspawn -D "$1/root" --volatile=overlay --register=no --keep-unit \\
  --private-network --console=pipe --bind="$1" --bind-ro="$2" \\
  --bind-ro="$1/units:/run/systemd/system" \\
  -b systemd.unit=basic.target systemd.wants=ironworks-test.service
"""

TEST_UNIT = """\
[Unit]
After=basic.target
[Service]
Type=oneshot
WorkingDirectory={repository}
Environment=PYTHONPATH={repository}
ExecStart={command}
StandardOutput=file:{folder}/output
StandardError=inherit
ExecStopPost=/bin/systemctl poweroff --no-block
"""


def why_not() -> str:
    """Why no container can be booted here, "" if one can."""
    if shutil.which("systemd-nspawn") is None:
        return "systemd-nspawn is not installed (apt-get install systemd-container)"
    if os.geteuid() != 0:
        return "only root may boot a container"
    return ""


def run_under_systemd(
    folder: Path, command: str, units: dict[str, str], *, seconds: float
) -> subprocess.CompletedProcess[str]:
    """Boot, run one command as a service, power off; its output is in ``folder / "output"``.

    Args:
        folder: seen inside under the same path, and the only place that is written to.
        command: as in ExecStart=, started in the repository.
        units: further unit files by name.
        seconds: for everything.
    """
    (folder / "root").mkdir()
    (folder / "units").mkdir()
    test = TEST_UNIT.format(repository=REPOSITORY, command=command, folder=folder)
    for name, text in {**units, "ironworks-test.service": test}.items():
        (folder / "units" / name).write_text(text)
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", BOOT, "boot", str(folder), str(REPOSITORY)],
        capture_output=True,
        text=True,
        timeout=seconds,
        stdin=subprocess.DEVNULL,
    )
