"""`pyspark-log topics add-partitions`."""

from __future__ import annotations

from typing import Annotated

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.opening import open_log

EXAMPLES = """\b
Examples:
  pyspark-log topics add-partitions flights --partitions 8
  pyspark-log topics add-partitions flights --partitions 4 --replica-assignment 0:1,1:2
"""


def add_partitions(
    name: arguments.Topic,
    path: arguments.Path,
    partitions: Annotated[int, typer.Option(min=1, metavar="N", help="Total number of partitions after the change.")],
    replica_assignment: Annotated[
        str | None,
        typer.Option(metavar="NODES", help="Nodes of the new partitions only, such as 0:1,1:2 for two partitions."),
    ] = None,
    json: arguments.Json = False,
) -> None:
    """Add partitions to a topic.

    Partitions cannot be removed. As in Kafka, most keys map to other partitions afterwards: new rows of a key are not
    in the same partition as its old rows, and not in order with them.
    """
    wanted = arguments.replica_assignment(replica_assignment)

    from pyspark_log_coordinator.sync import reassigner

    first, added = reassigner.add_partitions(open_log(path).topic(name), partitions, wanted)
    documents = [{"partition": number, "replicas": nodes} for number, nodes in enumerate(added, first)]
    output.show(
        {"topic": name, "partitions": partitions, "added": documents},
        f"topic {name} now has {partitions:,} partitions (was {first:,})",
        json=json,
    )
