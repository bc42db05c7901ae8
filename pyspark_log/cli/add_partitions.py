"""`pyspark-log topics add-partitions`: give a topic more partitions."""

from __future__ import annotations

from typing import Annotated

import typer

from pyspark_log.cli import arguments

EXAMPLES = """\b
Examples:
  pyspark-log topics add-partitions flights --partitions 8
  pyspark-log topics add-partitions flights --partitions 4 --replica-assignment 0:1,1:2
"""


def add_partitions(
    name: arguments.Topic,
    path: arguments.Path,
    partitions: Annotated[int, typer.Option(min=1, metavar="N", help="How many it shall have, old ones and new.")],
    replica_assignment: Annotated[
        str | None,
        typer.Option(metavar="NODES", help="The nodes of the new ones by hand, such as 0:1,1:2 for two."),
    ] = None,
    json: arguments.Json = False,
) -> None:
    """Give a topic more partitions.

    They are never taken away. Rows with a key go to other partitions from then on, as in Kafka: those of
    one key are no longer in one partition, nor in order across the change.
    """
    wanted = None if replica_assignment is None else arguments.assignment(replica_assignment)

    from pyspark_log.client.opening import open_log
    from pyspark_log_coordinator.sync import reassigner

    log = open_log(path)
    handle = log.topic(name)
    assignments = None if wanted is None else tuple(tuple(each) for each in wanted)
    first, added = reassigner.add_partitions(handle, partitions, assignments)
    if json:
        from pyspark_log.cli.output import print_json

        documents = [{"partition": number, "replicas": nodes} for number, nodes in enumerate(added, first)]
        print_json({"topic": name, "partitions": partitions, "added": documents})
    else:
        typer.echo(f"topic {name} has {partitions:,} partitions now, and had {first:,}")
