"""`pyspark-log verify`: an offline audit of what is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_log.cli import arguments
from pyspark_log.cli.words import counted

if TYPE_CHECKING:
    from pyspark_log_coordinator.audit.verify import Report
    from pyspark_log_coordinator.log.log import Log

EXAMPLES = """\b
Examples:
  pyspark-log verify
  pyspark-log verify flights --repair
  pyspark-log verify --node 1
  pyspark-log verify --json
"""


def verify(
    path: arguments.Path,
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="Which; all and the cluster if none is named.")
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="First make again what can be made without loss.")] = False,
    node: Annotated[str | None, typer.Option(metavar="NODE", help="Only the copies of this node.")] = None,
    json: arguments.Json = False,
) -> None:
    """Read all that is stored, and say what is wrong.

    Checks checksums, offsets, indexes, the journals' chains, and that what a journal names is there, on every node.
    What is damaged or missing on one node is copied again from another with --repair. The exit code is 0 where all is
    sound, 1 where something is wrong.
    """
    import msgspec

    from pyspark_log.cli import output
    from pyspark_log.client.opening import open_log
    from pyspark_log_coordinator.audit.verify import verify_cluster
    from pyspark_log_coordinator.cluster.cluster_state import topic_of
    from pyspark_log_coordinator.cluster.nodes import node_of
    from pyspark_log_storage.errors import UnknownTopic

    log = open_log(path)
    for name in topics or ():
        topic_of(log.cluster.state, name)  # one that is misspelt is told before all is read
    if node is not None:
        node_of(log.cluster.state.nodes, node)
    sound = True

    def tell(report: Report, made: list[str]) -> None:
        nonlocal sound
        sound = sound and report.sound
        if json:
            output.print_json({**msgspec.to_builtins(report), "sound": report.sound, "repaired": made})
        else:
            _print(report, made)

    if not topics:
        made = log.cluster.mend(contents=True) if repair else []
        tell(verify_cluster(log), made)
    for name in topics or sorted(log.topics()):
        try:
            tell(*_audit(log, name, node, repair=repair))
        except UnknownTopic:
            if topics:
                raise
            # else it was deleted meanwhile
    if not sound:
        raise typer.Exit(1)


def _audit(log: Log, name: str, node: str | None, *, repair: bool) -> tuple[Report, list[str]]:
    """Return the audit of a topic, and what was made again before. Raises `UnknownTopic`."""
    from pyspark_log.cli.progress import bar
    from pyspark_log_coordinator.audit import repair as repairs
    from pyspark_log_coordinator.audit import verify as audit
    from pyspark_log_storage.errors import LogError, UnknownTopic

    try:
        handle = log.topic(name)
    except UnknownTopic:
        raise
    except LogError as error:
        return audit.Report(name, [audit.Finding("journal", error.message)]), []
    made = repairs.repair(handle, node) if repair else []
    with bar(f"verify {name}", audit.bytes_to_read(handle, node)) as progress:
        return audit.verify(handle, progress, node), made


def _print(report: Report, made: list[str]) -> None:
    name = "the cluster" if report.topic is None else report.topic
    for key in made:
        typer.echo(f"{name}: made {key} again")
    for finding in report.findings:
        hint = " (verify --repair can make it again)" if finding.repairable else ""
        typer.echo(f"{name}: {finding.what}: {finding.detail}{hint}")
    verdict = "sound" if report.sound else counted(len(report.findings), "finding")
    entries = f"{report.entries:,} journal {'entry' if report.entries == 1 else 'entries'}"
    seen = f"{entries}, {counted(len(report.orphans), 'orphan')}"
    if report.topic is not None:
        where = f"{counted(report.segments, 'segment')} and the unrolled rest"
        rows = f"{counted(report.rows, 'row')}, {counted(report.bytes, 'byte')} in {where}"
        seen = f"{rows}, {seen}"
    typer.echo(f"{name}: {verdict}; {seen}")
