"""`pyspark-log consume`: print the rows of a topic.

Each poll prints the new rows of a consistent cut of the topic, partition by partition. So rows of one partition are in
order, and across partitions only the polls are.
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
from pyspark_log.client.opening import open_log
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
            help="Start: earliest, latest, an offset (with one --partition), or @MS for the first row of each "
            "partition at or after a time in milliseconds since 1970.",
        ),
    ] = "earliest",
    partition: Annotated[
        list[int] | None,
        typer.Option(min=0, metavar="N", help="Partition to read; can be repeated (default: all).", show_default=False),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Exit after this number of rows.", show_default=False)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new rows until Ctrl-C.")] = False,
    rack: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Rack of this machine, as Kafka's client.rack: prefer to read from a node in this rack.",
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        Format,
        typer.Option("--format", help="Format of a line: text is the value, json is the row as produce reads it."),
    ] = Format.TEXT,
    key_separator: arguments.KeySeparator = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Print the rows of a topic.

    Rows are printed partition by partition, so only the rows of one partition are in order.

    Text prints a null value as null. JSON prints binary data as {"base64": "/w=="}.
    """
    form = Format.JSON if json else form
    arguments.check_key_separator(key_separator, form)
    if not (start in {"earliest", "latest"} or _TIME.fullmatch(start) or _OFFSET.fullmatch(start)):
        arguments.refuse("--from", f"{start!r} is not earliest, latest, an offset, or @MS (milliseconds since 1970)")
    try:
        log = open_log(path)
        handle = log.topic(topic)
        partitions = _chosen(handle, partition)
        reading = _Reading(handle, _begins(handle, partitions, start), form, key_separator, rack or "")
        left = max_messages
        while True:
            printed = reading.poll(log, left)
            left = None if left is None else left - printed
            if not follow or left == 0:
                return
            _wait(POLL_SECONDS)
            handle.refresh()
    except KeyboardInterrupt:
        if not follow:
            raise
        sys.stdout.flush()


class _Reading:
    """The next offset of each partition, and the format of rows."""

    def __init__(
        self, handle: TopicHandle, begins: dict[int, int], form: Format, key_separator: str | None, rack: str
    ) -> None:
        self._handle = handle
        self._next = begins
        self._form = form
        self._separator = None if key_separator is None else os.fsencode(key_separator)
        self._rack = rack

    def poll(self, log: Log, rows_max: int | None) -> int:
        """Print new rows, at most `rows_max`, and return their number."""
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
    state = handle.journal.state
    for number in wanted or ():
        state.partition(number)  # raises if there is none
    return sorted(set(wanted)) if wanted else list(range(len(state.partitions)))


def _begins(handle: TopicHandle, partitions: list[int], start: str) -> dict[int, int]:
    """Return the first offset to read of each partition."""
    from pyspark_log.client.read.positions import Subscribed, resolve
    from pyspark_log.options import Earliest, GlobalTimestamp, Latest, NoMatch

    if _OFFSET.fullmatch(start):
        return _at_offset(handle, partitions, int(start))
    position = Earliest() if start == "earliest" else Latest() if start == "latest" else GlobalTimestamp(int(start[1:]))
    now = Subscribed({handle.name: handle}, {handle.name: tuple(partitions)})
    found = resolve(now, position, NoMatch.LATEST, ending=False)
    return {number: found[handle.name, number] for number in partitions}


def _at_offset(handle: TopicHandle, partitions: list[int], offset: int) -> dict[int, int]:
    if len(partitions) > 1:
        raise InvalidInput(
            f"--from {offset} needs one partition, but {len(partitions)} of topic {handle.name!r} are selected; select "
            "one with --partition"
        )
    (number,) = partitions
    state = handle.journal.state.partitions[number]
    if not state.log_start <= offset <= state.high_watermark:
        raise DataLoss(
            f"topic {handle.name!r}, partition {number} has no offset {offset}; expected an offset from "
            f"{state.log_start} to {state.high_watermark}, the offset of the next row"
        )
    return {number: offset}


def _wait(seconds: float) -> None:
    """Wait. Raise `BrokenPipeError` if the reader of stdout closes the pipe."""
    try:
        descriptor = sys.stdout.fileno()
    except io.UnsupportedOperation:
        time.sleep(seconds)
        return
    watch = select.poll()
    watch.register(descriptor, 0)  # errors are always reported
    if watch.poll(seconds * 1000):
        raise BrokenPipeError
