"""Gate ``safe_files``: nothing in the version can run code or read past a file's end."""

from pathlib import Path

from lifecycle.gates.outcome import GateOutcome
from registry.checkpoint_files import check_checkpoint
from registry.errors import CheckpointError

NAME = "safe_files"


def evaluate(directory: Path) -> GateOutcome:
    """Check file names, configuration and safetensors headers of a model directory."""
    try:
        facts = check_checkpoint(directory)
    except CheckpointError as error:
        return GateOutcome("fail", "the checkpoint is not safe to load", findings=(str(error),))
    return GateOutcome(
        "pass",
        f"{facts.tensors} tensors in {len(facts.shards)} shards are sound; no file holds code",
        {
            "shards": len(facts.shards),
            "tensors": facts.tensors,
            "parameters": facts.parameters,
        },
    )
