"""`pyspark-log offsets`: the earliest and latest offsets of a topic, or the offsets at a time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.opening import open_log

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import TopicHandle

EARLIEST_TIME = -2
LATEST_TIME = -1
TIME_MS_MAX = 2**63 // 1000 - 1
"""The latest timestamp of a row, which is stored in microseconds."""

_INTEGER = re.compile(r"-?[0-9]{1,30}", re.ASCII)


@arguments.examples(
    "pyspark-log offsets flights",
    "pyspark-log offsets flights --time 1700000000000 --json",
)
def offsets(
    topic: arguments.Topic,
    path: arguments.Path,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="MS",
            help="Show the offset of the first row of each partition at or after this time, in milliseconds since "
            "1970; -1 means latest, -2 earliest.",
            show_default=False,
        ),
    ] = None,
    json: arguments.Json = False,
) -> None:
    """Show the earliest and latest offsets of a topic.

    The latest offset is that of the next row that readers will see.
    """
    ms = None if time is None else _milliseconds(time)

    log = open_log(path)
    handle = log.topic(topic)
    if ms is not None:
        _print_offsets_of_time(handle, ms, json=json)
        return
    partitions = [
        (number, each.log_start, each.high_watermark, each.high_watermark - each.log_start)
        for number, each in enumerate(handle.partitions)
    ]
    if json:
        names = ("partition", "earliest", "latest", "rows")
        output.print_json(*({"topic": topic, **dict(zip(names, each, strict=True))} for each in partitions))
    else:
        totals = ("total", "", "", sum(rows for *_, rows in partitions)) if len(partitions) > 1 else None
        output.print_table(("partition", "earliest", "latest", "rows"), partitions, totals)


def _milliseconds(text: str) -> int:
    """Return the time of `text`. End the program if it is invalid."""
    ms = int(text) if _INTEGER.fullmatch(text) else None
    if ms is None or not EARLIEST_TIME <= ms <= TIME_MS_MAX:
        arguments.refuse(
            "--time",
            f"{text!r} is not a valid time; expected milliseconds since 1970 (at most {TIME_MS_MAX}), -1 for latest or"
            " -2 for earliest",
        )
    return ms


def _print_offsets_of_time(handle: TopicHandle, time: int, *, json: bool) -> None:
    from pyspark_log.reading.positions import offset_for_time

    found: list[tuple[int, Any]] = []
    for number, partition in enumerate(handle.partitions):
        if time == EARLIEST_TIME:
            found.append((number, partition.log_start))
        elif time == LATEST_TIME:
            found.append((number, partition.high_watermark))
        else:
            found.append((number, offset_for_time(handle, number, time)))
    if json:
        output.print_json(*({"topic": handle.name, "partition": number, "offset": offset} for number, offset in found))
    else:
        output.print_table(
            ("partition", "offset"), [(number, "none" if offset is None else offset) for number, offset in found]
        )
