"""Makes the three locks from ``pyproject.toml`` with uv; needs the package index.

``python requirements/lock.py [--upgrade]``: pins stay where they are unless they must or, with
``--upgrade``, may move. uv knows its own settings only, not pip's; of those, PIP_FIND_LINKS is
passed on for the CPU lock, since torch's CPU build often lies in a folder. The default lock must
not see that folder: to uv ``2.13.0+cpu`` satisfies ``2.13.0``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import lockfile

OPTIONS = (
    "--python-version=3.11",
    "--generate-hashes",
    # pip refuses `gql[requests]` from a dependency if the pin says only `gql`.
    "--no-strip-extras",
    # The default header quotes the command line, with this machine's paths.
    "--no-header",
    "--quiet",
)


def compile_lock(name: str, sources: Sequence[str]) -> None:
    """Let uv resolve ``sources`` into ``requirements/<name>`` and put our header on it.

    Raises:
        subprocess.CalledProcessError: uv found no solution; it has said why.
    """
    target = lockfile.FOLDER / name
    print(f"locking {name}", flush=True)
    output = f"--output-file={target.relative_to(lockfile.REPOSITORY)}"
    subprocess.run(
        [sys.executable, "-m", "uv", "pip", "compile", *OPTIONS, *sources, output],
        cwd=lockfile.REPOSITORY,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    target.write_text(
        "# Made by `make lock`; do not edit.\n"
        f"{lockfile.DIGEST_LINE}{lockfile.dependency_digest()}\n"
        f"{target.read_text()}"
    )


def compile_cpu_lock(options: Sequence[str]) -> None:
    """Lock the product with torch's CPU build in place of the default one."""
    torch = lockfile.read_lock(lockfile.FOLDER / "default.txt").pins["torch"]
    links = [f"--find-links={link}" for link in os.environ.get("PIP_FIND_LINKS", "").split()]
    with tempfile.TemporaryDirectory() as folder:
        override = Path(folder) / "torch-cpu-build"
        override.write_text(f"torch=={torch.public_version}+cpu\n")
        compile_lock("cpu.txt", ["pyproject.toml", f"--override={override}", *links, *options])
        target = lockfile.FOLDER / "cpu.txt"
        target.write_text(target.read_text().replace(f"{folder}/", ""))


def main() -> int:
    """Make all three; the other two follow the default one's pins."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="take newer releases")
    options = ["--upgrade"] if parser.parse_args().upgrade else []
    follow = ["--constraint=requirements/default.txt"]
    try:
        compile_lock("default.txt", ["pyproject.toml", *options])
        compile_cpu_lock(options)
        compile_lock("dev.txt", ["--group=pyproject.toml:dev", *follow, *options])
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    return 0


if __name__ == "__main__":
    sys.exit(main())
