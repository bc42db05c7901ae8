"""`pyspark-log delete-records`: delete the oldest rows of a partition."""

from __future__ import annotations

from typing import Annotated

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.output import counted
from pyspark_log.opening import open_log

EXAMPLES = """\b
Examples:
  pyspark-log delete-records flights --partition 0 --before 1000
  pyspark-log delete-records flights --partition 0 --before -1 --yes
"""


def delete_records(
    topic: arguments.Topic,
    path: arguments.Path,
    partition: Annotated[int, typer.Option(min=0, metavar="N", help="Partition to delete rows from.")],
    before: Annotated[
        int, typer.Option(min=-1, metavar="OFFSET", help="Delete the rows before this offset; -1 deletes all rows.")
    ],
    yes: arguments.Yes = False,
    json: arguments.Json = False,
) -> None:
    """Delete the oldest rows of a partition.

    A query that still needs these rows fails, or skips them if failOnDataLoss is false.
    """
    handle = open_log(path).topic(topic)
    low = handle.partition(partition).log_start
    which = "all rows" if before < 0 else f"the rows before offset {before}"
    question = f"delete {which} of topic {topic}, partition {partition}? This cannot be undone."
    arguments.confirm(question, otherwise="nothing was deleted", yes=yes)
    start = handle.delete_records(partition, before)
    output.show(
        {"topic": topic, "partition": partition, "log_start": start, "rows": start - low},
        f"deleted {counted(start - low, 'row')}; topic {topic}, partition {partition} now starts at offset {start}",
        json=json,
    )
