"""`pyspark-log verify`: check everything that is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.output import bar, counted
from pyspark_log.opening import open_log
from pyspark_log_storage.errors import LogError, UnknownTopic

if TYPE_CHECKING:
    from pyspark_log_coordinator.audit.verify import Report
    from pyspark_log_coordinator.log.log import Log


@arguments.examples(
    "pyspark-log verify",
    "pyspark-log verify flights --repair",
    "pyspark-log verify --node 1",
    "pyspark-log verify --json",
)
def verify(
    path: arguments.Path,
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="Names of topics (default: all, and the cluster).")
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="First repair everything that can be repaired without loss.")
    ] = False,
    node: Annotated[
        str | None, typer.Option(metavar="NODE", help="Check or repair only the copies on this node.")
    ] = None,
    json: arguments.Json = False,
) -> None:
    """Check everything that is stored and report problems.

    Checks checksums, offsets, indexes and the hash chains of journals, and that every file that a journal names exists
    on its nodes. With --repair, rebuild damaged indexes, and replace damaged or missing files with copies from other
    nodes. The exit code is 1 if there are problems.
    """
    from pyspark_log_coordinator.audit.repair import repair_journals
    from pyspark_log_coordinator.audit.verify import verify_cluster

    log = open_log(path)
    for name in topics or ():
        log.check_topic(name)  # raises if the name is wrong, before anything is read
    if node is not None:
        log.node(node)
    sound = True

    def show(report: Report, repaired: list[str]) -> None:
        nonlocal sound
        sound = sound and report.sound
        if json:
            output.print_json({**report.document(), "sound": report.sound, "repaired": repaired})
        else:
            _print(report, repaired)

    if not topics:
        repaired = repair_journals(log) if repair else []
        show(verify_cluster(log), repaired)
    for name in topics or sorted(log.topics()):
        try:
            show(*_audit(log, name, node, repair=repair))
        except UnknownTopic:
            if topics:
                raise
            # otherwise it was deleted after the names were listed
    if not sound:
        raise typer.Exit(1)


def _audit(log: Log, name: str, node: str | None, *, repair: bool) -> tuple[Report, list[str]]:
    """Return the audit of a topic, and the files repaired before it. Raise `UnknownTopic`."""
    from pyspark_log_coordinator.audit import repair as repairs
    from pyspark_log_coordinator.audit import verify as audit

    try:
        handle = log.topic(name)
    except UnknownTopic:
        raise
    except LogError as error:
        return audit.Report(name, [audit.Finding("journal", error.message)]), []
    repaired = repairs.repair(handle, node) if repair else []
    with bar(f"verify {name}", audit.bytes_to_read(handle, node)) as progress:
        return audit.verify(handle, progress, node), repaired


def _print(report: Report, repaired: list[str]) -> None:
    name = "the cluster" if report.topic is None else report.topic
    for key in repaired:
        typer.echo(f"{name}: repaired {key}")
    for finding in report.findings:
        hint = " (verify --repair can fix this)" if finding.repairable else ""
        typer.echo(f"{name}: {finding.sentence}{hint}")
    verdict = "no problems" if report.sound else counted(len(report.findings), "problem")
    seen = f"{counted(report.entries, 'journal entry')}, {counted(len(report.orphans), 'orphan')}"
    if report.topic is not None:
        where = f"{counted(report.segments, 'segment')} and unrolled files"
        rows = f"{counted(report.rows, 'row')}, {counted(report.bytes, 'byte')} in {where}"
        seen = f"{rows}, {seen}"
    typer.echo(f"{name}: {verdict}; {seen}")
