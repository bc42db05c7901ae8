"""`pyspark-log topics describe`: the settings, leaders and replicas of topics, or only the partitions in trouble."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_log.cli import arguments
from pyspark_log.cli.command import Result, command
from pyspark_log.cli.topics.topics import NO_TOPICS
from pyspark_log.documents import topics as documents
from pyspark_log_coordinator.log.partition_health import Trouble

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import Log


@command(
    "pyspark-log topics describe",
    "pyspark-log topics describe flights --all-configs",
    "pyspark-log topics describe --under-replicated-partitions",
)
def describe(  # noqa: PLR0913, PLR0917 -- the options of a command
    log: Log,
    topics: arguments.Topics = None,
    all_configs: Annotated[bool, typer.Option("--all-configs", help="Also show settings with default values.")] = False,
    under_replicated: Annotated[
        bool,
        typer.Option("--under-replicated-partitions", help="Show only partitions with out-of-sync replicas."),
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable-partitions", help="Show only partitions without a leader.")
    ] = False,
    under_min_isr: Annotated[
        bool,
        typer.Option(
            "--under-min-isr-partitions", help="Show only partitions with fewer than min.insync.replicas in sync."
        ),
    ] = False,
    at_min_isr: Annotated[
        bool,
        typer.Option("--at-min-isr-partitions", help="Show only partitions with exactly min.insync.replicas in sync."),
    ] = False,
) -> Result:
    """Show the settings and partitions of topics.

    The log end is the offset of the next row to be written; the high watermark is that of the next row that readers
    will see. Other engines find the rows before the table end in the topic's Delta table.
    """
    wanted = {
        Trouble.UNDER_REPLICATED: under_replicated,
        Trouble.UNAVAILABLE: unavailable,
        Trouble.UNDER_MIN_ISR: under_min_isr,
        Trouble.AT_MIN_ISR: at_min_isr,
    }
    kinds = [kind for kind, is_wanted in wanted.items() if is_wanted]
    if len(kinds) > 1:
        arguments.refuse("--under-replicated-partitions, ..., --at-min-isr-partitions", "give only one of these")

    found = [(each, documents.topic(each)) for each in documents.handles_of(log, topics)]
    if kinds:
        described = []
        for handle, document in found:
            partitions = [document["partitions"][number] for number in documents.in_trouble(handle, kinds[0])]
            described += [document | {"partitions": partitions}] if partitions else []
        rows = [{"topic": each["topic"]} | one for each in described for one in each["partitions"]]
        return Result(described, text=rows, empty=f"no partition is {kinds[0].value}")
    shown = []
    for handle, document in found:
        config = [each for each in documents.settings(handle.config) if all_configs or each["value"] != each["default"]]
        shown.append(document | {"config": {each["name"]: each["value"] for each in config} or "all default"})
    return Result([document for _, document in found], text=shown, empty=NO_TOPICS, records=True)
