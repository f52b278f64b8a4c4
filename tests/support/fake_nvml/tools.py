"""Stand-ins for ``nvidia-smi``, ``rmmod``, ``modprobe`` and ``systemctl``; run, not imported.

They act on the state file of the fake NVML library and on the fixture tree, and write down
each call. Keys of the state file that they read, all optional:

    reset_ms, rmmod_ms, modprobe_ms   how long they take
    reset_works=0                     `nvidia-smi -r` fails, as it does for most lost GPUs
    reload_works=0                    the fault is still there after rmmod and modprobe
    smi_hang_ms                       nvidia-smi hangs, as it does with a dead driver
    units=a.service,b.service         systemd units that are active
    installed_driver                  version of the user space; a reload brings it in
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

HOME = Path(os.environ["FAKE_NVML_HOME"])
STATE = HOME / "state"
MODULES = HOME / "root" / "sys" / "module"
PROC = HOME / "root" / "proc"

# Who uses whom, as `lsmod` shows it.
USES = {
    "nvidia_drm": "nvidia_modeset",
    "nvidia_modeset": "nvidia",
    "nvidia_uvm": "nvidia",
    "nvidia_peermem": "nvidia",
}
_FAULTS = re.compile(r"(gpu\d+\.ret|gpu\d+\.field230|hang_ms|smi_hang_ms|init_ret)")


def read() -> dict[str, str]:
    lines = STATE.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def write(state: dict[str, str]) -> None:
    partial = STATE.with_suffix(f".{os.getpid()}")
    partial.write_text("".join(f"{key}={value}\n" for key, value in state.items()))
    partial.replace(STATE)


def healed(state: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in state.items() if not _FAULTS.fullmatch(key)}


def wait(state: dict[str, str], key: str) -> None:
    time.sleep(int(state.get(key, "0")) / 1000)


def fail(text: str, code: int = 1) -> int:
    print(text, file=sys.stderr)
    return code


def holders() -> int:
    links = [link for link in PROC.glob("[0-9]*/fd/*") if link.is_symlink()]
    return sum(str(link.readlink()).startswith("/dev/nvidia") for link in links)


def refcount(module: str) -> int:
    users = sum(1 for user, used in USES.items() if used == module and (MODULES / user).exists())
    return users + (holders() if module in ("nvidia", "nvidia_uvm") else 0)


def nvidia_smi(arguments: list[str]) -> int:
    state = read()
    wait(state, "smi_hang_ms")
    if "-pm" in arguments:
        write({**state, f"gpu{arguments[arguments.index('-i') + 1]}.persistence": "0"})
        return 0
    if "-r" not in arguments:
        print("Fake GPU")
        return 0
    if "-i" not in arguments:
        return fail("a reset of all GPUs at once was asked for", 2)
    gpu = arguments[arguments.index("-i") + 1]
    wait(state, "reset_ms")
    if not (MODULES / "nvidia").exists():
        return fail("NVIDIA-SMI has failed because it couldn't communicate with the driver.", 9)
    if holders() or state.get(f"gpu{gpu}.persistence", "1") == "1":
        return fail(f"GPU {gpu} could not be reset: it is in use by another client.", 19)
    if state.get("reset_works", "1") == "0":
        return fail(f"GPU {gpu} could not be reset: Unknown Error", 255)
    write(healed(state))
    print(f"GPU {gpu} was successfully reset.")
    return 0


def rmmod(arguments: list[str]) -> int:
    wait(read(), "rmmod_ms")
    for module in arguments:
        folder = MODULES / module
        if not folder.exists():
            return fail(f"rmmod: ERROR: Module {module} is not currently loaded")
        if refcount(module):
            return fail(f"rmmod: ERROR: Module {module} is in use")
        for file in sorted(folder.rglob("*"), reverse=True):
            file.unlink()
        folder.rmdir()
        if module == "nvidia":
            write({**read(), "reloading": read().get("init_ret", "0"), "init_ret": "9"})
    return refresh()


def modprobe(arguments: list[str]) -> int:
    state = read()
    wait(state, "modprobe_ms")
    for module in (name.replace("-", "_") for name in arguments):
        (MODULES / module).mkdir(exist_ok=True)
        if module == "nvidia":
            before = state.pop("reloading", "0")
            if state.get("reload_works", "1") == "1":
                state = healed(state)
                if "installed_driver" in state:
                    state["driver"] = state["installed_driver"]
                    (MODULES / "nvidia" / "version").write_text(state["driver"] + "\n")
            else:
                state["init_ret"] = before
            write(state)
    return refresh()


def refresh() -> int:
    for module in MODULES.iterdir():
        if module.name.startswith("nvidia"):
            (module / "refcnt").write_text(f"{refcount(module.name)}\n")
    return 0


def systemctl(arguments: list[str]) -> int:
    state = read()
    units = [unit for unit in state.get("units", "").split(",") if unit]
    verb, *names = [argument for argument in arguments if not argument.startswith("-")]
    if verb == "is-active":
        active = [name in units for name in names]
        print("\n".join("active" if on else "inactive" for on in active))
        return 0 if all(active) else 3
    if verb == "stop":
        units = [unit for unit in units if unit not in names]
    elif verb == "start":
        units += [name for name in names if name not in units]
    write({**state, "units": ",".join(units)})
    return 0


def main() -> int:
    name, *arguments = sys.argv[1:]
    with (HOME / "calls.log").open("a") as log:
        log.write(" ".join([name, *arguments]) + "\n")
    tools = {
        "nvidia-smi": nvidia_smi,
        "rmmod": rmmod,
        "modprobe": modprobe,
        "systemctl": systemctl,
    }
    return tools[name](arguments)


if __name__ == "__main__":
    sys.exit(main())
