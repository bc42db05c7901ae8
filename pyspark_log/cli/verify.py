"""`pyspark-log verify`: an offline audit of what is stored."""

from __future__ import annotations

from typing import Annotated

import typer

from pyspark_log.cli import arguments

EXAMPLES = """\b
Examples:
  pyspark-log verify
  pyspark-log verify flights --repair
  pyspark-log verify --json
"""


def verify(
    path: arguments.Path,
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Which; all if none is named.")
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="First make again what can be made without loss.")] = False,
    json: arguments.Json = False,
) -> None:
    """Read everything that topics have stored, and say what is not as it should be.

    Checks checksums, offsets, indexes, the journal's chain, and that what the journal names is there. The exit code is
    0 where all is sound, 1 where something is wrong.
    """
    import msgspec

    from pyspark_log.cli import output
    from pyspark_log.cli.progress import bar
    from pyspark_log.opening import open_log
    from pyspark_log_coordinator import verify as audit

    log = open_log(path)
    sound = True
    for name in topics or sorted(log.topics()):
        handle = log.topic(name)
        made = audit.repair(log.store, handle) if repair else []
        partitions = handle.journal.state.partitions
        total = sum(each.log_bytes for partition in partitions for each in partition.segments)
        total += sum(each.length for partition in partitions for each in partition.chunks)
        with bar(f"verify {name}", total) as progress:
            report = audit.verify(log.store, handle, progress)
        sound = sound and report.sound
        if json:
            output.print_json({**msgspec.to_builtins(report), "sound": report.sound, "repaired": made})
            continue
        for key in made:
            typer.echo(f"{name}: made {key} again")
        for finding in report.findings:
            hint = " (verify --repair can make it again)" if finding.repairable else ""
            typer.echo(f"{name}: {finding.what}: {finding.detail}{hint}")
        verdict = "sound" if report.sound else f"{len(report.findings)} findings"
        typer.echo(
            f"{name}: {verdict}; {report.rows:,} rows, {report.bytes:,} bytes in {report.segments:,} segments and the "
            f"unrolled rest, {report.entries:,} journal entries, {len(report.orphans):,} orphans"
        )
    if not sound:
        raise typer.Exit(1)
