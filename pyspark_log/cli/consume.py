"""`pyspark-log consume`: rows of a topic as lines.

Each poll takes one consistent cut of the topic and prints what is new in it, partition by partition, so the order of
rows is that of their partition, and across partitions that of the polls.
"""

from __future__ import annotations

import functools
import io
import os
import re
import select
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_log.cli import arguments
from pyspark_log.cli.arguments import Format
from pyspark_log_storage.errors import DataLoss, InvalidInput

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import Log, TopicHandle

POLL_SECONDS = 0.1
EXAMPLES = """\b
Examples:
  pyspark-log consume flights --max-messages 10
  pyspark-log consume flights --follow --from latest --json
  pyspark-log consume flights --partition 0 --from 120
  pyspark-log consume flights --from @1700000000000
"""
_TIME = re.compile(r"@[0-9]{1,15}")
_OFFSET = re.compile(r"[0-9]{1,18}")


def consume(  # noqa: PLR0913  # one for each option of the command
    *,
    topic: arguments.Topic,
    path: arguments.Path,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="earliest, latest, an offset of the one --partition, or @MS: the first row of each partition at or "
            "after that time, in milliseconds since 1970.",
        ),
    ] = "earliest",
    partition: Annotated[
        list[int] | None,
        typer.Option(min=0, metavar="N", help="Only this partition; may be given often.", show_default=False),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="End after so many rows.", show_default=False)
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more rows at the end, until Ctrl-C.")
    ] = False,
    rack: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Where this runs: rows are read from a node of that rack, where one has them (Kafka's client.rack).",
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        Format, typer.Option("--format", help="What a line is: a value, or the whole row as produce takes it.")
    ] = Format.TEXT,
    key_separator: arguments.KeySeparator = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Print the rows of a topic as lines.

    Each poll prints what is new partition by partition, so only rows of one
    partition are in the order in which they were written.

    As text a null is the word null; as JSON, bytes that are no text are
    {"base64": "/w=="}.
    """
    form = Format.JSON if json else form
    arguments.check_key_separator(key_separator, form)
    if not (start in {"earliest", "latest"} or _TIME.fullmatch(start) or _OFFSET.fullmatch(start)):
        arguments.refuse("--from", f"{start!r} is not earliest, latest, an offset, or @ and milliseconds since 1970")
    try:
        from pyspark_log.client.opening import open_log

        log = open_log(path)
        handle = log.topic(topic)
        partitions = _chosen(handle, partition)
        reading = _Reading(handle, _begins(handle, partitions, start), form, key_separator, rack or "")
        left = max_messages
        while True:
            came = reading.poll(log, left)
            left = None if left is None else left - came
            if not follow or left == 0:
                return
            _wait(POLL_SECONDS)
            handle.refresh()
    except KeyboardInterrupt:
        if not follow:
            raise
        sys.stdout.flush()


class _Reading:
    """Where each partition goes on, and how its rows are printed."""

    def __init__(
        self, handle: TopicHandle, begins: dict[int, int], form: Format, key_separator: str | None, rack: str
    ) -> None:
        self._handle = handle
        self._next = begins
        self._form = form
        self._separator = None if key_separator is None else os.fsencode(key_separator)
        self._rack = rack

    def poll(self, log: Log, rows_max: int | None) -> int:
        """Print the rows that are there now, at most `rows_max`, and return how many these were."""
        from pyspark_log.cli import json_rows, text_rows
        from pyspark_log.client.read.fetch import BATCH_ROWS, fetch
        from pyspark_log.client.read.planning import Range, find_again, split_of

        rows = 0
        ends = {number: self._handle.journal.state.partitions[number].high_watermark for number in self._next}
        for number, begin in list(self._next.items()):
            end = ends[number] if rows_max is None else min(ends[number], begin + rows_max - rows)
            if end <= begin:
                continue
            split = split_of(self._handle, Range(self._handle.name, number, begin, end), self._rack)
            for offset, batch in fetch(log.store_at, split, functools.partial(find_again, log, split)):
                for first in range(0, batch.num_rows, BATCH_ROWS):
                    record = batch.slice(first, BATCH_ROWS)
                    if self._form is Format.JSON:
                        lines = json_rows.encode(record, self._handle.name, number, offset + first)
                    else:
                        lines = text_rows.encode(record, self._separator)
                    sys.stdout.buffer.write(lines)
                    sys.stdout.buffer.flush()
                    self._next[number] = offset + first + record.num_rows
            rows += end - begin
        return rows


def _chosen(handle: TopicHandle, wanted: Sequence[int] | None) -> list[int]:
    count = len(handle.journal.state.partitions)
    for number in wanted or ():
        if number >= count:
            raise InvalidInput(
                f"topic {handle.name!r} has no partition {number}: it has {count}, numbered from 0; choose one of these"
            )
    return sorted(set(wanted)) if wanted else list(range(count))


def _begins(handle: TopicHandle, partitions: list[int], start: str) -> dict[int, int]:
    """Return the first offset to read of each partition."""
    from pyspark_log.client.read.positions import Subscribed, resolve
    from pyspark_log.options import Earliest, GlobalTimestamp, Latest, NoMatch

    if _OFFSET.fullmatch(start):
        return _at_offset(handle, partitions, int(start))
    wish = Earliest() if start == "earliest" else Latest() if start == "latest" else GlobalTimestamp(int(start[1:]))
    now = Subscribed({handle.name: handle}, {handle.name: tuple(partitions)})
    found = resolve(now, wish, NoMatch.LATEST, ending=False)
    return {number: found[handle.name, number] for number in partitions}


def _at_offset(handle: TopicHandle, partitions: list[int], offset: int) -> dict[int, int]:
    if len(partitions) > 1:
        raise InvalidInput(
            f"--from {offset} is an offset of one partition, and topic {handle.name!r} has {len(partitions)} here; "
            "choose one with --partition"
        )
    (number,) = partitions
    state = handle.journal.state.partitions[number]
    if not state.log_start <= offset <= state.high_watermark:
        raise DataLoss(
            f"topic {handle.name!r}, partition {number} has no offset {offset}: its offsets are {state.log_start} "
            f"to {state.high_watermark}, where {state.high_watermark} is the next row's; choose one of these"
        )
    return {number: offset}


def _wait(seconds: float) -> None:
    """Wait, unless the reader of stdout goes away meanwhile: raises `BrokenPipeError` then."""
    try:
        descriptor = sys.stdout.fileno()
    except io.UnsupportedOperation:
        time.sleep(seconds)
        return
    watch = select.poll()
    watch.register(descriptor, 0)  # errors are always reported
    if watch.poll(seconds * 1000):
        raise BrokenPipeError
