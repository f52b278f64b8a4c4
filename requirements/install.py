"""Makes the virtual environment from the locks. Standard library only; any Python 3.11 runs it.

``python3.11 requirements/install.py [--dev]`` takes the CPU lock where there is no GPU and the
package index offers torch's CPU build, else the default lock, and says which and why. What was
installed is stamped with the digests of the locks: a second run does nothing, at once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import lockfile

STAMP = "ironworks-installed.json"
LOG = "ironworks-install.log"


class InstallError(Exception):
    """What was wrong, where, and what to do; the same shape as the product's own errors."""

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what, self.where, self.fix = what, where, fix


@dataclass(frozen=True)
class Choice:
    """Which lock is taken, and why, in words."""

    lock: Path
    reason: str


@dataclass(frozen=True)
class Environment:
    """A virtual environment in the folder ``root``."""

    root: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.root / "bin" / "python"

    def create(self) -> None:
        """Make it unless it is there and works.

        Raises:
            InstallError: this Python can't make environments.
        """
        if self.python.exists() and self._run("-m", "pip", "--version").returncode == 0:
            return
        say(f"making the virtual environment {self.root}")
        shutil.rmtree(self.root, ignore_errors=True)
        made = subprocess.run(
            [sys.executable, "-m", "venv", str(self.root)], capture_output=True, text=True
        )
        if made.returncode != 0:
            raise InstallError(
                "this Python can't make a virtual environment",
                where=sys.executable,
                fix="install its venv module (Debian: apt-get install python3.11-venv)",
            )

    def offers(self, name: str, version: str) -> bool:
        """Whether pip, as it is configured here, could install that very version.

        Downloads nothing.
        """
        answer = self._run("-m", "pip", "index", "versions", name)
        available = re.search(r"^Available versions: (.*)$", answer.stdout, re.MULTILINE)
        return available is not None and version in available[1].split(", ")

    def install_lock(self, lock: lockfile.Lock) -> None:
        """Install every pin of a lock; pip refuses whatever does not match its hashes."""
        say(f"installing {len(lock.pins)} packages of {lock.path.name}, each checked by its sha256")
        self._pip("--require-hashes", "-r", str(lock.path), total=len(lock.pins))

    def install_product(self, repository: Path) -> None:
        """Install the checkout itself, so that it runs from where it lies."""
        say("installing ironworks itself, from this checkout")
        self._pip("--no-deps", "--no-build-isolation", "-e", str(repository), total=1)

    def stamp(self) -> dict[str, str]:
        """What a run before this one has installed: digest by name; {} if nothing is known."""
        try:
            stamp = json.loads((self.root / STAMP).read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return {str(name): str(digest) for name, digest in stamp.items()}

    def write_stamp(self, stamp: dict[str, str]) -> None:
        """Remember what is installed."""
        (self.root / STAMP).write_text(json.dumps(stamp, indent=1) + "\n")

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(self.python), *arguments], capture_output=True, text=True)

    def _pip(self, *arguments: str, total: int) -> None:
        """Run ``pip install``: with pip's own bars on a terminal, else one short line a package."""
        command = [str(self.python), "-m", "pip", "install", "--no-input", *arguments]
        if sys.stdout.isatty():
            status, advice = subprocess.run(command).returncode, "see pip's message above"
        else:
            status, advice = self._pip_in_lines(command, total)
        if status != 0:
            raise InstallError("pip failed", where=arguments[-1], fix=advice)

    def _pip_in_lines(self, command: list[str], total: int) -> tuple[int, str]:
        log = self.root / LOG
        with log.open("w") as stream:
            pip = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            assert pip.stdout is not None
            count = 0
            for line in pip.stdout:
                stream.write(line)
                if " (from -r " in line:
                    count += 1
                    # "Collecting NAME==VERSION (from …", "Processing /…/FILE.whl (from …"
                    what = re.sub(
                        r"^(Collecting|Processing|.*:) | (\(from|in) .*", "", line
                    ).strip()
                    say(f"  {count:3d}/{total} {what.rpartition('/')[2]}")
                elif line.lstrip().startswith(("Downloading ", "Installing ", "ERROR")):
                    say(f"          {line.strip()[:80]}")
        return pip.wait(), f"read {log}"


def choose_lock(environment: Environment, folder: Path) -> Choice:
    """Choose between the CPU and the default lock.

    Args:
        environment: whose pip is asked what the package index offers.
        folder: where the locks lie.
    """
    gpu = find_gpu()
    if gpu:
        return Choice(folder / "default.txt", f"there is a GPU ({gpu})")
    torch = lockfile.read_lock(folder / "cpu.txt").pins["torch"]
    if environment.offers("torch", torch.version):
        return Choice(folder / "cpu.txt", "there is no GPU, and the index offers torch's CPU build")
    return Choice(
        folder / "default.txt",
        f"there is no GPU, but the index does not offer torch {torch.version} either",
    )


def find_gpu() -> str:
    """How a GPU shows itself on this host, "" if none does."""
    if Path("/dev/nvidia0").exists():
        return "/dev/nvidia0"
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return ""
    try:
        # It can hang on a sick driver; the environment must not wait for that.
        listed = subprocess.run([smi, "-L"], capture_output=True, text=True, timeout=20)
    except subprocess.TimeoutExpired:
        return "nvidia-smi, which does not answer"
    return "nvidia-smi" if listed.returncode == 0 and "GPU 0" in listed.stdout else ""


def install(environment: Environment, folder: Path, repository: Path, *, dev: bool) -> None:
    """Bring the environment to what the locks say.

    Args:
        environment: made if it does not exist.
        folder: where the locks lie.
        repository: the checkout, installed as an editable package.
        dev: also what tests and checks need.

    Raises:
        InstallError: the environment or a package can't be installed.
    """
    before = environment.stamp()
    wanted = {name: _digest(folder / f"{name}.txt") for name in ("cpu", "default", "dev")}
    project = _digest(repository / "pyproject.toml")
    runtime = before.get("runtime", "")
    current = runtime in wanted and before.get(runtime) == wanted[runtime]
    parts = [
        current,
        before.get("project") == project,
        not dev or before.get("dev") == wanted["dev"],
    ]
    if environment.python.exists() and all(parts):
        locks = f"{runtime}.txt{' and dev.txt' if dev else ''}"
        say(f"{environment.root.name} is up to date with {locks}")
        return
    environment.create()
    stamp = environment.stamp()  # gone if the environment was made afresh
    if not (stamp and current):
        choice = choose_lock(environment, folder)
        runtime = choice.lock.stem
        say(f"taking {choice.lock.name}: {choice.reason}")
        environment.install_lock(lockfile.read_lock(choice.lock))
        stamp = {**stamp, "runtime": runtime, runtime: wanted[runtime]}
        environment.write_stamp(stamp)
    if stamp.get("project") != project:
        environment.install_product(repository)
        stamp = {**stamp, "project": project}
        environment.write_stamp(stamp)
    if dev and stamp.get("dev") != wanted["dev"]:
        environment.install_lock(lockfile.read_lock(folder / "dev.txt"))
        environment.write_stamp({**stamp, "dev": wanted["dev"]})


def say(line: str) -> None:
    """Print a line of progress, at once also into a pipe."""
    print(line, flush=True)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(arguments: list[str] | None = None) -> int:
    """Install; 2 with a plain error where that is not possible."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dev", action="store_true", help="also what tests and checks need")
    parser.add_argument(
        "--environment", type=Path, default=lockfile.REPOSITORY / ".venv", metavar="DIR"
    )
    options = parser.parse_args(arguments)
    try:
        if sys.version_info[:2] != (3, 11):
            raise InstallError(
                f"Python {sys.version.split()[0]} is not supported",
                where=sys.executable,
                fix="use Python 3.11, for example `make PYTHON=/path/to/python3.11 install`",
            )
        environment = Environment(options.environment.absolute())
        install(environment, lockfile.FOLDER, lockfile.REPOSITORY, dev=options.dev)
    except InstallError as error:
        print(f"error: {error.what}", file=sys.stderr)
        for label, text in (("where", error.where), ("fix", error.fix)):
            if text:
                print(f"{label}: {text}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
