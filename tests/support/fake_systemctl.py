"""Stands in for ``systemctl`` where no systemd runs: units are processes, files are state.

``IRONWORKS_FAKE_UNITS`` is a folder: ``template`` holds the text of the unit template,
``UNIT.pid`` the pid of one that runs, ``calls`` every call. ``hang`` in it makes it hang.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ.get("IRONWORKS_FAKE_UNITS", "."))


def pid_of(unit: str) -> int:
    try:
        pid = int((FOLDER / f"{unit}.pid").read_text())
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ValueError):
        return 0
    return 0 if state in "ZX" else pid


def setting(name: str, unit: str) -> str:
    instance = unit.partition("@")[2].removesuffix(".service")
    (value,) = re.findall(rf"^{name}=(.*)$", (FOLDER / "template").read_text(), re.MULTILINE)
    return str(value).replace("%i", instance)


def start(unit: str) -> None:
    if pid_of(unit):
        return
    lines = Path(setting("EnvironmentFile", unit)).read_text().splitlines()
    variables = {n: v.strip('"') for n, _, v in (line.partition("=") for line in lines)}
    with (FOLDER / f"{unit}.log").open("ab") as log:
        process = subprocess.Popen(
            setting("ExecStart", unit).split(),
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    (FOLDER / f"{unit}.pid").write_text(str(process.pid))


def stop(unit: str, number: int = signal.SIGTERM) -> None:
    if pid := pid_of(unit):
        os.kill(pid, number)
        while pid_of(unit):
            time.sleep(0.05)


def main(arguments: list[str]) -> int:
    with (FOLDER / "calls").open("a") as calls:
        calls.write(" ".join(arguments) + "\n")
    if (FOLDER / "hang").exists():
        time.sleep(60)
    verb, unit = arguments[0], arguments[-1]
    if verb == "show":
        pid = pid_of(unit)
        print(f"ActiveState={'active' if pid else 'inactive'}\nMainPID={pid}")
    elif verb == "list-units":
        names = [path.stem for path in FOLDER.glob("*.pid") if pid_of(path.stem)]
        print("".join(f"{name} loaded active running A replica\n" for name in names), end="")
    elif verb == "start":
        start(unit)
    elif verb == "stop":
        stop(unit)
    elif verb == "kill":
        stop(unit, signal.SIGKILL)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
