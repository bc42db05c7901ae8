"""`pyspark-log verify`: check everything that is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli.command import Result, command
from pyspark_log.cli.output import bar
from pyspark_log.documents.text import counted
from pyspark_log_coordinator.audit import repair as repairs
from pyspark_log_coordinator.audit import verify as audit
from pyspark_log_storage.errors import LogError, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_log_coordinator.log.log import Log


@command(
    "pyspark-log verify",
    "pyspark-log verify flights --repair",
    "pyspark-log verify --node 1",
    "pyspark-log verify --json",
)
def verify(
    log: Log,
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="Names of topics (default: all, and the cluster).")
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="First repair everything that can be repaired without loss.")
    ] = False,
    node: Annotated[
        str | None, typer.Option(metavar="NODE", help="Check or repair only the copies on this node.")
    ] = None,
) -> Result:
    """Check everything that is stored and report problems.

    Checks checksums, offsets, indexes and the hash chains of journals, and that every file that a journal names exists
    on its nodes. With --repair, rebuild damaged indexes, and replace damaged or missing files with copies from other
    nodes. The exit code is 1 if there are problems. "Entries" counts those that the journals still have after their
    oldest snapshot: none at first after cluster migrate-journals.
    """
    for name in topics or ():
        log.check_topic(name)  # raises if the name is wrong, before anything is read
    if node is not None:
        log.node(node)
    found = [
        {**report.document(), "sound": report.sound, "repaired": repaired}
        for report, repaired in _reports(log, topics, node, repair=repair)
    ]
    problems = [finding for each in found for finding in each["findings"]]
    repairable = sum(each["repairable"] for each in problems)
    summary = f"{counted(len(problems), 'problem')}, of which verify --repair can repair {repairable}"
    return Result(found, [summary] if problems else [], list(map(_shown, found)))


def _reports(
    log: Log, topics: list[str] | None, node: str | None, *, repair: bool
) -> Iterator[tuple[audit.Report, list[str]]]:
    """Yield the audits, and the files repaired before each. Raise `UnknownTopic` for a topic that was named."""
    if not topics:
        repaired = repairs.repair_journals(log) if repair else []
        yield audit.verify_cluster(log), repaired
    for name in topics or sorted(log.topics()):
        try:
            yield _report(log, name, node, repair=repair)
        except UnknownTopic:
            if topics:
                raise
            # otherwise it was deleted after the names were listed


def _report(log: Log, name: str, node: str | None, *, repair: bool) -> tuple[audit.Report, list[str]]:
    try:
        handle = log.topic(name)
    except UnknownTopic:
        raise
    except LogError as error:
        return audit.Report(name, [audit.Finding("journal", error.message)]), []
    repaired = repairs.repair(handle, node) if repair else []
    with bar(f"verify {name}", audit.bytes_to_read(handle, node)) as progress:
        return audit.verify(handle, progress, node), repaired


def _shown(document: dict[str, Any]) -> dict[str, Any]:
    """Return what people see of a report: of orphans, which are harmless, only how many there are."""
    shown = {"topic": document["topic"] or "the cluster", "sound": document["sound"]}
    return {**shown, **{k: each for k, each in document.items() if k not in shown}, "orphans": len(document["orphans"])}
