"""How versions, gates and answers look in the Dagster UI.

Digests, tables and text are shown on the materialisation; every plain number also
becomes a plot over the versions of a model.
"""

from collections.abc import Iterable

from dagster import MetadataValue, TableColumn, TableMetadataValue, TableRecord, TableSchema
from dagster._core.definitions.metadata import MarkdownMetadataValue

from lifecycle.gates.outcome import GateOutcome
from registry.clock import iso
from registry.gates import GateResult
from registry.manifest import FileEntry

_MEGABYTE = 1_000_000


def files_table(files: Iterable[tuple[str, int]]) -> TableMetadataValue:
    """Show (path, bytes) of files that have not been hashed yet."""
    return MetadataValue.table(
        records=[TableRecord({"path": path, "bytes": size}) for path, size in files],
        schema=TableSchema(columns=[_PATH, _BYTES]),
    )


def digests_table(files: Iterable[FileEntry]) -> TableMetadataValue:
    """Show the files of a manifest with their sha256."""
    return MetadataValue.table(
        records=[
            TableRecord({"path": entry.path, "bytes": entry.size, "sha256": entry.sha256})
            for entry in files
        ],
        schema=TableSchema(
            columns=[_PATH, _BYTES, TableColumn("sha256", "string", "of the whole file")]
        ),
    )


def gates_table(results: Iterable[GateResult]) -> TableMetadataValue:
    """Show the newest result of each gate; ``results`` come oldest first."""
    newest = {result.gate: result for result in results}
    return MetadataValue.table(
        records=[
            TableRecord(
                {
                    "gate": result.gate,
                    "outcome": result.outcome,
                    "recorded": iso(result.recorded_us),
                    "expires": iso(result.expires_us),
                    "by": result.actor,
                }
            )
            for result in newest.values()
        ],
        schema=TableSchema(
            columns=[
                TableColumn("gate", "string"),
                TableColumn("outcome", "string", "pass, fail or inconclusive"),
                TableColumn("recorded", "string", "UTC"),
                TableColumn("expires", "string", "UTC"),
                TableColumn("by", "string"),
            ]
        ),
    )


def changes_table(changes: Iterable[tuple[str, str, float]]) -> TableMetadataValue:
    """Show what was done to each replica: (service, step, seconds)."""
    return MetadataValue.table(
        records=[
            TableRecord({"replica": service, "did": step, "seconds": round(seconds, 3)})
            for service, step, seconds in changes
        ],
        schema=TableSchema(
            columns=[
                TableColumn("replica", "string"),
                TableColumn("did", "string", "start, swap, rolling or none"),
                TableColumn("seconds", "float"),
            ]
        ),
    )


def conversation(prompt: str, answer: str) -> MarkdownMetadataValue:
    """Show a prompt and what the model said, as quotations."""
    return MetadataValue.md(f"**Prompt**\n\n{_quote(prompt)}\n\n**Answer**\n\n{_quote(answer)}")


def findings_list(outcome: GateOutcome) -> MarkdownMetadataValue:
    """Show what a gate found wrong, one point each."""
    points = "\n".join(f"- {finding}" for finding in outcome.findings)
    return MetadataValue.md(points or outcome.summary)


def megabytes(size: int) -> float:
    """Bytes as MB (10⁶ bytes), for plots."""
    return round(size / _MEGABYTE, 3)


def _quote(text: str) -> str:
    # Generated text is shown as it is: a fence longer than any run of backticks in it
    # keeps Markdown and HTML in it from being interpreted.
    fence = "`" * max(3, 1 + _longest_run(text, "`"))
    return f"{fence}text\n{text[:2000]}\n{fence}"


def _longest_run(text: str, character: str) -> int:
    longest = current = 0
    for letter in text:
        current = current + 1 if letter == character else 0
        longest = max(longest, current)
    return longest


_PATH = TableColumn("path", "string")
_BYTES = TableColumn("bytes", "int")
