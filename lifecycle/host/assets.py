"""Asset ``host_report``: the machine as it was found, with one check per group.

The asset itself never fails for what it finds: a failed check is the finding. Each check
shows its group's evidence and fixes; the numbers become plots over time.
"""

from collections.abc import Iterable, Iterator

from dagster import (
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetExecutionContext,
    MaterializeResult,
    MetadataValue,
    TableColumn,
    TableMetadataValue,
    TableRecord,
    TableSchema,
    asset,
)

from lifecycle.host.report import Finding, GroupReport
from lifecycle.host.resources import HostResource
from lifecycle.host.verify import GROUPS, report_file, verify_and_keep
from lifecycle.models.failures import plain_failures
from lifecycle.models.provenance import actor_of
from lifecycle.models.resources import StateFolder
from registry.errors import IronworksError

GROUP_NAME = "host"


@asset(
    group_name=GROUP_NAME,
    kinds={"file"},
    check_specs=[
        AssetCheckSpec(name=group.name, asset="host_report", description=f"Checks: {group.about}.")
        for group in GROUPS
    ],
)
def host_report(
    context: AssetExecutionContext, machine: HostResource, state: StateFolder
) -> Iterator[MaterializeResult[None]]:
    """Driver, libraries, kernel, services, disks and clocks of this machine, as verified."""
    with plain_failures():
        report = verify_and_keep(
            machine.host(), state.paths, lambda group: context.log.info(f"checking {group}")
        )
    try:
        with state.registry() as registry:
            registry.record(
                "host.verified",
                machine.name,
                {
                    "status": report.status,
                    "counts": report.counts,
                    "problems": [finding.name for finding in report.problems],
                },
                actor=actor_of(context.run),
            )
    except IronworksError as error:
        # A full disk is among what is found here: the report is shown all the same.
        context.log.error(f"the audit log could not be told: {error}")
    for finding in report.problems:
        context.log.warning(f"{finding.name}: {finding.outcome.evidence}")
    yield MaterializeResult(
        metadata={
            "host": report.host,
            "gpu": "present" if report.has_gpu else "no GPU",
            "status": report.status,
            "problems": _table(report.problems),
            "passed": report.counts["pass"],
            "warnings": report.counts["warn"],
            "failures": report.counts["fail"],
            "unknown": report.counts["unknown"],
            "report": MetadataValue.path(str(report_file(state.paths))),
            "seconds": report.seconds,
        },
        check_results=[_check(group) for group in report.groups],
    )


def _check(group: GroupReport) -> AssetCheckResult:
    """One group as an asset check: failures are errors, warnings are warnings."""
    failed = group.status == "fail"
    return AssetCheckResult(
        check_name=group.name,
        asset_key="host_report",
        passed=group.status not in ("warn", "fail"),
        severity=AssetCheckSeverity.ERROR if failed else AssetCheckSeverity.WARN,
        description=_summary(group),
        metadata={"findings": _table(group.findings)} if group.findings else {},
    )


def _summary(group: GroupReport) -> str:
    problems = [finding for finding in group.findings if finding.is_problem]
    if not problems:
        return group.note or f"{len(group.findings)} checks, nothing to do"
    return "\n".join(f"{f.check}: {f.outcome.evidence}. Fix: {f.outcome.fix}" for f in problems)


def _table(findings: Iterable[Finding]) -> TableMetadataValue:
    return MetadataValue.table(
        records=[
            TableRecord(
                {
                    "check": finding.name,
                    "status": finding.outcome.status,
                    "evidence": finding.outcome.evidence,
                    "fix": finding.outcome.fix,
                }
            )
            for finding in findings
        ],
        schema=TableSchema(
            columns=[
                TableColumn("check", "string"),
                TableColumn("status", "string", "pass, warn, fail, unknown"),
                TableColumn("evidence", "string", "what was seen, and where"),
                TableColumn("fix", "string"),
            ]
        ),
    )
