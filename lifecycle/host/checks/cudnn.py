"""Group ``cudnn``: which cuDNN is found, linked and really mapped (L11)."""

from __future__ import annotations

import re

from lifecycle.host.checks.outcome import Group, Outcome, failed, passed, unknown, warned
from lifecycle.host.elf import read_dynamic
from lifecycle.host.inspection import Inspection, real_path
from lifecycle.host.serving_processes import read_if_allowed

_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
_TOOLKIT_FOLDERS = ("/usr/local/cuda/lib64",)
_HEADERS = ("/usr/include/cudnn_version.h", "/usr/include/x86_64-linux-gnu/cudnn_version.h")
_REINSTALL = (
    "sudo apt-get install --reinstall libcudnn{major}-cuda-12; a link made by hand is rewritten "
    "by the next ldconfig"
)


def header(inspection: Inspection) -> Outcome | None:
    """The header that builds see belongs to the library that they will link."""
    for path in _HEADERS:
        text = inspection.host.read(path)
        if text is None:
            continue
        numbers = [
            re.search(rf"#define CUDNN_{part}\s+(\d+)", text)
            for part in ("MAJOR", "MINOR", "PATCHLEVEL")
        ]
        declared = ".".join(match[1] for match in numbers if match)
        link = next(
            (name for name in _system_links(inspection) if name.endswith("libcudnn.so")), ""
        )
        library = _version_behind(inspection, link) if link else ""
        if library and library != declared:
            return warned(
                f"{path} is of cuDNN {declared}, {link} leads to {library}",
                "install the -dev package of the same version as the library",
            )
        return passed(f"{path} is of cuDNN {declared}")
    return None


def links(inspection: Inspection) -> Outcome | None:
    """Every link ``libcudnn….so.N`` leads to a library that calls itself so."""
    names = [name for name in _system_links(inspection) if re.search(r"\.so\.\d+$", name)]
    if not names:
        return None
    wrong = []
    for name in names:
        target = inspection.host.resolve(name)
        if target is None:
            wrong.append(f"{name} leads nowhere")
            continue
        dynamic = read_dynamic(real_path(inspection.host, name))
        if dynamic is None:
            wrong.append(f"{target} is no shared library")
        elif dynamic.soname != name.rpartition("/")[2]:
            wrong.append(f"{name} leads to {target}, whose SONAME is {dynamic.soname or 'empty'}")
    if wrong:
        major = wrong[0].partition(".so.")[2][:1]
        return warned("; ".join(wrong[:4]), _REINSTALL.format(major=major))
    return passed(f"{len(names)} links lead to libraries of their name")


def linked_by_torch(inspection: Inspection) -> Outcome | None:
    """The cuDNN that torch links to is found where its RPATH looks first."""
    folder = str(inspection.torch.facts.get("library_folder") or "")
    library = f"{folder}/libtorch_cuda.so"
    if not folder or not inspection.host.exists(library):
        return None
    dynamic = read_dynamic(real_path(inspection.host, library))
    if dynamic is None:
        return unknown(f"{library} can't be read as a library")
    needed = [name for name in dynamic.needed if name.startswith("libcudnn")]
    if not needed:
        return passed(f"{library} does not link to cuDNN directly")
    search = dynamic.runpath or dynamic.rpath
    kind = "RUNPATH" if dynamic.runpath else "RPATH"
    places = [place.replace("$ORIGIN", folder) for place in search.split(":") if place]
    for name in needed:
        for place in places:
            if inspection.host.exists(f"{place}/{name}"):
                return passed(f"{name} is found by {kind} in {place}")
    return warned(
        f"{needed[0]} is in none of the folders of torch's {kind} ({search or 'empty'}): "
        "whichever the system's linker finds is taken",
        "install torch again from the locked requirements: `make install`",
    )


def mapped(inspection: Inspection) -> Outcome:
    """No process has two cuDNN majors mapped: the maps are the truth of what runs."""
    seen = 0
    for path in inspection.host.glob("/proc/[0-9]*/maps"):
        text = read_if_allowed(inspection.host, path) or ""
        files = sorted(set(re.findall(r"\s(/\S*libcudnn\S*\.so\.\d\S*)", text)))
        majors = {re.search(r"\.so\.(\d+)", file)[1] for file in files}  # type: ignore[index]
        seen += bool(files)
        if len(majors) > 1:
            return failed(
                f"pid {path.split('/')[2]} has cuDNN {' and '.join(sorted(majors))} mapped: "
                f"{', '.join(files[:4])} (/proc/PID/maps)",
                "remove the system's cuDNN from LD_LIBRARY_PATH of that service, or install one "
                "cuDNN only; wheels carry their own",
            )
    return passed(f"{seen} processes have cuDNN mapped, none of two majors")


def _system_links(inspection: Inspection) -> list[str]:
    names: list[str] = []
    for folder in (*_FOLDERS, *_TOOLKIT_FOLDERS):
        names += inspection.host.glob(f"{folder}/libcudnn*.so*")
    return [name for name in names if inspection.host.readlink(name) is not None]


def _version_behind(inspection: Inspection, name: str) -> str:
    found = re.search(r"\.so\.(\d+\.\d+\.\d+)$", inspection.host.resolve(name) or "")
    return found[1] if found else ""


GROUP = Group("cudnn", "cuDNN", (header, links, linked_by_torch, mapped), needs_gpu=True)
