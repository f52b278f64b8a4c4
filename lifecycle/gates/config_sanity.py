"""Gate ``config_sanity``: configuration, tokenizer and tensors belong together."""

from pathlib import Path

from lifecycle.gates.outcome import GateOutcome
from registry.checkpoint_files import check_config
from registry.errors import CheckpointError

NAME = "config_sanity"


def evaluate(directory: Path) -> GateOutcome:
    """Compare config.json with the tokenizer and the tensor shapes of a model directory."""
    try:
        findings = tuple(str(finding) for finding in check_config(directory))
    except CheckpointError as error:
        findings = (str(error),)
    numbers = {"findings": len(findings)}
    if findings:
        return GateOutcome("fail", "the files do not belong together", numbers, findings)
    return GateOutcome("pass", "configuration, tokenizer and tensors agree", numbers)
