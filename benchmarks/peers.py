"""The servers that `benchmarks.engine` compares: ours, and each peer that is installed.

A peer lives in an environment of its own and is named by an environment variable; one
that is not there is reported as absent, never skipped in silence.

=====================  =====================================================================
transformers serve     comes with the product's own environment
vLLM                   IRONWORKS_BENCH_VLLM: path of the `vllm` executable
llama.cpp              IRONWORKS_BENCH_LLAMA_SERVER: path of `llama-server`, and
                       IRONWORKS_BENCH_LLAMA_MODEL: the same model as a GGUF file
=====================  =====================================================================
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers import Server, free_port, running
from registry.store import Registry

MODEL = "smollm2-135m"


@dataclass(frozen=True)
class Peer:
    """A server that could be compared; ``absent`` says why it can't be, "" when it can."""

    name: str
    absent: str = ""

    def start(self, model_dir: Path, scratch: Path) -> AbstractContextManager[Server]:
        """Start the server on the model in ``model_dir``, bf16, with room for 16 requests."""
        starters = {
            "ironworks": _ironworks,
            "transformers": _transformers,
            "vllm": _vllm,
            "llama.cpp": _llama_cpp,
        }
        return starters[self.name](model_dir, scratch)


def find_peers() -> list[Peer]:
    """Ours first, then every peer, absent ones with the reason."""
    return [
        Peer("ironworks"),
        Peer("transformers", _missing_file(str(Path(sys.executable).with_name("transformers")))),
        Peer("vllm", _missing_variable("IRONWORKS_BENCH_VLLM")),
        Peer(
            "llama.cpp",
            _missing_variable("IRONWORKS_BENCH_LLAMA_SERVER")
            or _missing_variable("IRONWORKS_BENCH_LLAMA_MODEL"),
        ),
    ]


def _missing_variable(name: str) -> str:
    value = os.environ.get(name)
    return _missing_file(value) if value else f"{name} is not set"


def _missing_file(path: str) -> str:
    return "" if Path(path).is_file() else f"{path} does not exist"


@contextmanager
def _ironworks(model_dir: Path, scratch: Path) -> Iterator[Server]:
    state = scratch / "ironworks"
    registry_root = state / "registry"
    registry_root.mkdir(parents=True)
    # The benchmark measures serving; the gates have their own tests.
    policy = {"aliases": {"*": {"gates": [], "max_age_seconds": 3600}}}
    (registry_root / "policy.json").write_text(json.dumps(policy))
    with Registry.open(registry_root) as registry:
        manifest = registry.build_manifest(model_dir)
        registry.ingest(model_dir, manifest)
        version = registry.register(
            manifest, model=MODEL, version="bench", actor="benchmark", source=str(model_dir)
        )
        registry.promote(version.digest, alias="production", actor="benchmark", reason="benchmark")
    port = free_port()
    command = [str(Path(sys.executable).with_name("ironworks")), "serve"]
    environment = {
        "IRONWORKS_STATE": str(state),
        "IRONWORKS_PORT": str(port),
        "IRONWORKS_MODEL": MODEL,
    }
    with running(
        command,
        port=port,
        model=MODEL,
        ready_path="/readyz",
        log=scratch / "ironworks.log",
        environment=environment,
    ) as server:
        yield server


def _transformers(model_dir: Path, scratch: Path) -> AbstractContextManager[Server]:
    port = free_port()
    command = [
        str(Path(sys.executable).with_name("transformers")),
        *("serve", str(model_dir), "--host", "127.0.0.1", "--port", str(port)),
        *("--continuous-batching", "--dtype", "bfloat16", "--device", "cpu"),
        # Its default block count allocates a 5.7 GiB mask on a CPU.
        *("--cb-block-size", "16", "--cb-num-blocks", "2048", "--cb-max-batch-tokens", "512"),
    ]
    return running(
        command,
        port=port,
        model=str(model_dir),
        ready_path="/health",
        log=scratch / "transformers.log",
        environment={"HF_HUB_OFFLINE": "1"},
    )


def _vllm(model_dir: Path, scratch: Path) -> AbstractContextManager[Server]:
    port = free_port()
    command = [
        os.environ["IRONWORKS_BENCH_VLLM"],
        *("serve", str(model_dir), "--host", "127.0.0.1", "--port", str(port)),
        *("--served-model-name", MODEL, "--dtype", "bfloat16", "--max-model-len", "2048"),
    ]
    environment = {
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    return running(
        command,
        port=port,
        model=MODEL,
        ready_path="/health",
        log=scratch / "vllm.log",
        environment=environment,
    )


def _llama_cpp(model_dir: Path, scratch: Path) -> AbstractContextManager[Server]:
    del model_dir  # it reads its own GGUF file
    port = free_port()
    command = [
        os.environ["IRONWORKS_BENCH_LLAMA_SERVER"],
        *("--model", os.environ["IRONWORKS_BENCH_LLAMA_MODEL"], "--host", "127.0.0.1"),
        *("--port", str(port), "--parallel", "16", "--ctx-size", str(16 * 2048)),
    ]
    return running(
        command, port=port, model=MODEL, ready_path="/health", log=scratch / "llama.cpp.log"
    )
