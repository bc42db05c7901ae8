"""Positions in a topic, as `--from` and `--to` take them: a word, an offset of one partition, or a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark_log.cli import arguments
from pyspark_log.documents.text import time_ms_of
from pyspark_log.options.position import Earliest, GlobalTimestamp, Latest, NoMatch
from pyspark_log.reading.positions import Subscribed, resolve
from pyspark_log_storage.errors import DataLoss, InvalidInput

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import TopicHandle

FROM, TO = "--from", "--to"
WORDS = {FROM: ("earliest", "latest"), TO: ("latest",)}
_OFFSET = re.compile(r"[0-9]{1,18}")


def check(option: str, text: str) -> None:
    """End the program if `text` is not a position."""
    if text in WORDS[option] or _OFFSET.fullmatch(text) or (text.startswith("@") and ms_of(text) is not None):
        return
    arguments.refuse(
        option,
        f"{text!r} is not {', '.join(WORDS[option])}, an offset, or a time: @MS (milliseconds since 1970) or"
        " @2026-01-31T12:00:00Z",
    )


def offsets_at(option: str, text: str, handle: TopicHandle, partitions: Sequence[int]) -> dict[int, int]:
    """Return the offset of a position in each partition. A time that no row has reached is the end.

    Raises `InvalidInput` for an offset of several partitions, `DataLoss` for one that the partition does not have.
    """
    if _OFFSET.fullmatch(text):
        return _at_offset(option, handle, partitions, int(text))
    ms = ms_of(text)
    position = Earliest() if text == "earliest" else Latest() if ms is None else GlobalTimestamp(ms)
    now = Subscribed({handle.name: handle}, {handle.name: tuple(partitions)})
    found = resolve(now, position, NoMatch.LATEST, ending=option == TO)
    return {number: found[handle.name, number] for number in partitions}


def ms_of(text: str) -> int | None:
    """Return the time of a position in milliseconds since 1970, or None if it is none."""
    try:
        ms = time_ms_of(text[1:])
    except InvalidInput:
        return None
    return ms if ms >= 0 else None


def _at_offset(option: str, handle: TopicHandle, partitions: Sequence[int], offset: int) -> dict[int, int]:
    if len(partitions) > 1:
        raise InvalidInput(
            f"{option} {offset} needs one partition, but {len(partitions)} of topic {handle.name!r} are selected; "
            "select one with --partition"
        )
    (number,) = partitions
    state = handle.partitions[number]
    if not state.log_start <= offset <= state.high_watermark:
        raise DataLoss(
            f"topic {handle.name!r}, partition {number} has no offset {offset}; expected an offset from "
            f"{state.log_start} to {state.high_watermark}, the offset of the next row"
        )
    return {number: offset}


def check_order(handle: TopicHandle, begins: dict[int, int], ends: dict[int, int]) -> None:
    """Raise `InvalidInput` if a partition ends before it begins."""
    for number, begin in begins.items():
        if ends[number] < begin:
            raise InvalidInput(
                f"topic {handle.name!r}, partition {number}: {TO} is at offset {ends[number]}, which is before {FROM}, "
                f"at offset {begin}; choose a later end"
            )
