"""`pyspark-log topics describe`: the settings, leaders and replicas of topics, or only the partitions in trouble."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.output import Column, counted
from pyspark_log.cli.topics.topics import NO_TOPICS
from pyspark_log.opening import open_log
from pyspark_log_coordinator.log.partition_health import Trouble, troubles
from pyspark_log_coordinator.model.topic_config import UNLIMITED, TopicConfig
from pyspark_log_storage.columns import column_types, schema
from pyspark_log_storage.errors import UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark_log_coordinator.log.log import Log, TopicHandle

_COLUMNS = (
    "partition",
    "leader",
    Column("leader_epoch", "epoch"),
    "replicas",
    Column("isr", "ISR"),
    Column("log_start", "log start"),
    Column("log_end", "LEO"),
    Column("high_watermark", "HW"),
)
_LEO_OF_EACH = Column(
    "log_end_offsets", "LEO of each", lambda ends: ", ".join(f"{node}={end:,}" for node, end in ends.items())
)


@arguments.examples(
    "pyspark-log topics describe",
    "pyspark-log topics describe flights --all-configs",
    "pyspark-log topics describe --under-replicated-partitions",
)
def describe(  # noqa: PLR0913, PLR0917 -- the options of a command
    path: arguments.Path,
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
    json: arguments.Json = False,
) -> None:
    """Show the settings and partitions of topics.

    LEO (log end offset) is the offset of the next row to be written; HW (high watermark) is that of the next row that
    readers will see.
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

    log = open_log(path)
    described = [(each, _document(each)) for each in handles_of(log, topics)]
    if kinds:
        _print_troubled(described, kinds[0], json=json)
        return
    if json:
        output.print_json(*(document for _, document in described))
    elif not described:
        typer.echo(NO_TOPICS)
    for number, (handle, document) in enumerate([] if json else described):
        if number:
            typer.echo()
        _print(handle, document, all_configs=all_configs)


def handles_of(log: Log, topics: Sequence[str] | None) -> list[TopicHandle]:
    """Return the handles of these topics, or of all. Raises `UnknownTopic` for one that was named."""
    handles = []
    for name in topics or sorted(log.topics()):
        try:
            handles.append(log.topic(name))
        except UnknownTopic:
            if topics:
                raise
            # otherwise it was deleted after the names were listed, or its deletion was interrupted
    return handles


def _document(handle: TopicHandle) -> dict[str, Any]:

    state = handle.state
    return {
        "topic": handle.name,
        "id": handle.topic_id,
        "journal_entry": handle.version,
        "config": state.config.show(),
        **_schema(handle),
        "partitions": [_partition(handle, number) for number in range(len(state.partitions))],
    }


def _schema(handle: TopicHandle) -> dict[str, Any]:
    """Return the newest columns of a typed topic, and how many schemas it has had; nothing for a topic of records."""
    found = handle.schemas
    if not schema.is_typed(found[-1]):
        return {}
    return {"schema": column_types.ddl(schema.columns_of(found[-1])), "schemas": len(found)}


def _partition(handle: TopicHandle, number: int) -> dict[str, Any]:
    partition = handle.partitions[number]
    return {
        "partition": number,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "offline": [each for each in partition.replicas if each in handle.log.broken_nodes],
        "adding": partition.adding,
        "removing": partition.removing,
        "log_start": partition.log_start,
        "log_end": partition.log_end,
        "high_watermark": partition.high_watermark,
        "rows": partition.rows_between(partition.log_start, partition.high_watermark),
        "table_end": handle.table_end(number),
        "log_end_offsets": partition.log_end_offsets,
        "future": future(handle, number),
    }


def future(handle: TopicHandle, number: int) -> list[dict[str, int]]:
    """Return the ranges of a partition that have rows with timestamps in the future."""
    return [{"from": each.base_offset, "to": each.end_offset - 1} for each in handle.of_the_future(number)]


def future_lines(partitions: Sequence[dict[str, Any]]) -> list[str]:
    """Return the same as text."""
    return [
        f"partition {each['partition']}: a row of offsets {found['from']} to {found['to']} has a timestamp in the "
        "future; they expire retention.ms after they were written"
        for each in partitions
        for found in each["future"]
    ]


def _print_troubled(described: list[tuple[TopicHandle, dict[str, Any]]], kind: Trouble, *, json: bool) -> None:
    """Print the partitions in trouble of a kind."""
    rows: list[dict[str, Any]] = []
    for handle, document in described:
        state = handle.state
        matches = [kind in troubles(each, state.config, handle.log.broken_nodes) for each in state.partitions]
        found = [each for each in document["partitions"] if matches[each["partition"]]]
        rows += [{"topic": handle.name, **each} for each in found]
        if json and found:
            output.print_json(document | {"partitions": found})
    if not json:
        columns = ("topic", *_COLUMNS, "rows", "offline", _LEO_OF_EACH)
        output.show_table(columns, rows, f"no partition is {kind.value}", json=False)


def _print(handle: TopicHandle, document: dict[str, Any], *, all_configs: bool) -> None:
    settings = handle.config.words()
    defaults = TopicConfig().words()
    changed = [f"{name}={value}" for name, value in settings.items() if value != defaults[name]]
    typer.echo(f"topic          {handle.name}")
    typer.echo(f"id             {handle.topic_id}")
    typer.echo(f"journal entry  {handle.version:,}")
    if "schema" in document:
        typer.echo(f"schema         {document['schema']}")
    if all_configs:
        typer.echo()
        rows = [{"config": name, "value": value, "default": defaults[name]} for name, value in settings.items()]
        output.print_table(("config", "value", "default"), rows)
    else:
        typer.echo(f"config         {', '.join(changed) or 'all default'}")
    for number, line in enumerate(_table(handle)):
        typer.echo(f"{'' if number else 'table':15}{line}")
    for number, line in enumerate(future_lines(document["partitions"])):
        typer.echo(f"{'' if number else 'retention':15}{line}")
    typer.echo()
    partitions = document["partitions"]
    offline = ["offline"] if any(each["offline"] for each in partitions) else []
    of_each = [_LEO_OF_EACH] if any(len(each["replicas"]) > 1 for each in partitions) else []
    output.print_table((*_COLUMNS, Column("rows", total=True), *offline, *of_each), partitions)


def _table(handle: TopicHandle) -> list[str]:
    """Return how many of the topic's rows other engines find in its table, and why not more."""
    state = handle.state
    ends = [handle.table_end(number) for number in range(len(state.partitions))]
    found = sum(each.rows_between(each.log_start, end) for end, each in zip(ends, state.partitions, strict=True))
    total = sum(each.rows_between(each.log_start, each.high_watermark) for each in state.partitions)
    is_parquet = state.config.segment_format == "parquet"
    if not is_parquet and not found:
        return []
    if state.config.is_compacted:
        newest, later = "the newest row of each key", total - found
        return [f"{newest}, as of the last compaction: {counted(later, 'row')} came later" if later else newest]
    lines = [f"{found:,} of {counted(total, 'row')}"]
    if found == total:
        return lines
    if not is_parquet:
        return [*lines, "segment.format is log; with segment.format=parquet pyspark-log maintain adds the others"]
    for number, (end, each) in enumerate(zip(ends, state.partitions, strict=True)):
        if handle.is_kept_in_chunks(number, end):
            lines.append(f"partition {number} ends at offset {end}: a later row is too large for Parquet")
        elif each.staged:
            lines.append(f"partition {number} ends at offset {end}: not all in-sync replicas have the next segment yet")
    lag = state.config.parquet_max_lag_ms
    if lag == UNLIMITED:
        return [*lines, "parquet.max.lag.ms is -1: newer rows wait for more, or for pyspark-log maintain --now"]
    by = "pyspark-log maintain and pyspark-log node run add newer rows when they are"
    return [*lines, f"{by} {lag / 1000:,.0f} s old (parquet.max.lag.ms), pyspark-log maintain --now at once"]
