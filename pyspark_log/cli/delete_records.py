"""`pyspark-log delete-records`: move a partition's log start by hand."""

from __future__ import annotations

from typing import Annotated

import typer

from pyspark_log.cli import arguments
from pyspark_log.cli.words import counted

EXAMPLES = """\b
Examples:
  pyspark-log delete-records flights --partition 0 --before 1000
  pyspark-log delete-records flights --partition 0 --before -1 --yes
"""


def delete_records(
    topic: arguments.Topic,
    path: arguments.Path,
    partition: Annotated[int, typer.Option(min=0, metavar="N", help="Of which partition.")],
    before: Annotated[int, typer.Option(min=-1, metavar="OFFSET", help="Rows before this offset go; -1 means all.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: arguments.Json = False,
) -> None:
    """Delete the oldest rows of a partition. Readers that still want them fail, or go on behind them."""
    from pyspark_log.cli import output
    from pyspark_log.client.opening import open_log
    from pyspark_log_coordinator.topic.machine import DeleteRecords

    handle = open_log(path).topic(topic)
    count = len(handle.journal.state.partitions)
    if partition >= count:
        arguments.refuse("--partition", f"topic {topic} has {count} partitions, numbered from 0")
    low = handle.journal.state.partitions[partition].log_start
    which = "all rows" if before < 0 else f"the rows before offset {before}"
    if not yes and not arguments.agreed(f"delete {which} of topic {topic}, partition {partition}, for good?"):
        typer.echo("pyspark-log: nothing was deleted", err=True)
        raise typer.Exit(1)
    start = handle.submit(DeleteRecords(partition, before)).state.partitions[partition].log_start
    if json:
        output.print_json({"topic": topic, "partition": partition, "log_start": start, "rows": start - low})
    else:
        typer.echo(
            f"deleted {counted(start - low, 'row')}; partition {partition} of topic {topic} begins at offset {start}"
        )
