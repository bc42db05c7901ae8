"""`pyspark-log groups reset-offsets`: set where a group continues, with the positions of kafka-consumer-groups."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.groups import offset_files
from pyspark_log.cli.output import counted
from pyspark_log.opening import open_log
from pyspark_log_storage.errors import InvalidInput, UnknownGroup

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark_log.cli.groups.offset_files import Offsets
    from pyspark_log_coordinator.log.log import Log

    TopicPartition = tuple[str, int]

LATEST = 2**63 - 1
_DURATION = re.compile(
    r"P(?:(?P<days>\d{1,6})D)?"
    r"(?:T(?:(?P<hours>\d{1,6})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9}(?:\.\d+)?)S)?)?"
)


@arguments.examples(
    "pyspark-log groups reset-offsets etl --topic flights --to-earliest",
    "pyspark-log groups reset-offsets etl --topic flights:0,1 --shift-by -100 --execute",
    "pyspark-log groups reset-offsets etl --all-topics --by-duration PT1H --execute",
    "pyspark-log groups reset-offsets etl --all-topics --to-current --export > offsets.csv",
    "pyspark-log groups reset-offsets etl --from-file offsets.csv --execute",
)
def reset_offsets(  # noqa: PLR0913 -- the options of a command
    *,
    group: arguments.GroupId,
    path: arguments.Path,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC[:P,P]", help="Topic, or some of its partitions; can be repeated."),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All partitions to which the group has committed.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="Go to the first row.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Go to the end.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="Stay at the committed offsets (with --export: save them).")
    ] = False,
    to_offset: Annotated[int | None, typer.Option(min=0, metavar="OFFSET", help="Go to this offset.")] = None,
    shift_by: Annotated[int | None, typer.Option(metavar="N", help="Go N rows forward, or back if negative.")] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Go to the first row at or after this time, such as 2026-01-31T12:00:00 or 2026-01-31T12:00:00+01:00"
            " (default: UTC).",
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Go to the first row that is at most this old, such as PT1H30M or P1D."),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Go to the offsets in a file made by --export or by groups export.",
        ),
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Reset the offsets; without it, only show them.")] = False,
    export: Annotated[bool, typer.Option("--export", help="Print lines of topic,partition,offset.")] = False,
    json: arguments.Json = False,
) -> None:
    """Set the offsets at which a group continues.

    A running streaming query with this group.id follows the reset with its next micro-batch, a stopped one when it
    starts again. Other consumers of the group must be stopped.
    """
    chosen = {
        "--to-earliest": to_earliest,
        "--to-latest": to_latest,
        "--to-current": to_current,
        "--to-offset": to_offset is not None,
        "--shift-by": shift_by is not None,
        "--to-datetime": to_datetime is not None,
        "--by-duration": by_duration is not None,
        "--from-file": from_file is not None,
    }
    _require_one(chosen, "a position")
    if from_file is None:
        _require_one({"--topic": bool(topic), "--all-topics": all_topics}, "the partitions")
    elif topic or all_topics:
        arguments.refuse("--from-file", "cannot be combined with --topic or --all-topics")
    if export and execute:
        arguments.refuse("--export", "cannot be combined with --execute: it changes nothing")
    log = open_log(path)
    committed = _committed(log, group)
    if from_file is not None:
        wanted = _read_file(from_file, group)
    else:
        partitions = sorted(committed) if all_topics else _partitions(log, topic or ())
        time = _time(log, to_datetime, by_duration)
        if to_current or shift_by is not None:
            _require_committed(group, partitions, committed)
            wanted = {key: committed[key] + (shift_by or 0) for key in partitions}
        elif time is not None:
            wanted = _at_time(log, partitions, time)
        else:
            wanted = dict.fromkeys(partitions, to_offset if to_offset is not None else LATEST if to_latest else 0)
    from pyspark_log.reading.groups import reset, within_log

    offsets = within_log(log, wanted)
    if execute:
        reset(log, group, offsets)
    _show(group, offsets, committed, executed=execute, export=export, json=json)


def _require_one(chosen: dict[str, bool], what: str) -> None:
    given = [name for name, is_given in chosen.items() if is_given]
    if len(given) != 1:
        names = ", ".join(chosen)
        arguments.refuse(given[-1] if given else next(iter(chosen)), f"give {what} with exactly one of {names}")


def _committed(log: Log, group: str) -> Offsets:
    from pyspark_log.reading.groups import lags

    try:
        state = log.group(group).state
    except UnknownGroup:
        return {}
    return {(each.topic, each.partition): each.committed for each in lags(log, state)}


def _partitions(log: Log, topics: Iterable[str]) -> list[TopicPartition]:
    found = []
    for text in topics:
        name, colon, numbers = text.partition(":")
        handle = log.topic(name)
        if colon and not re.fullmatch(r"\d{1,9}(,\d{1,9})*", numbers):
            arguments.refuse("--topic", f"{text!r} is not TOPIC:P,P, such as flights:0,1")
        everything = range(len(handle.partitions))
        for number in sorted({int(each) for each in numbers.split(",")}) if colon else everything:
            handle.partition(number)  # raises if there is none
            found.append((name, number))
    return found


def _require_committed(group: str, partitions: Iterable[TopicPartition], committed: Offsets) -> None:
    missing = [f"{topic}:{number}" for topic, number in partitions if (topic, number) not in committed]
    if missing:
        raise InvalidInput(
            f"group {group!r} has no committed offset of {', '.join(missing)}; choose another position for it"
        )


def _time(log: Log, to_datetime: str | None, by_duration: str | None) -> int | None:
    """Return the chosen time in ms. End the program if it is invalid."""
    if to_datetime is not None:
        try:
            time = datetime.fromisoformat(to_datetime.replace("Z", "+00:00"))
        except ValueError:
            arguments.refuse("--to-datetime", f"{to_datetime!r} is not a time such as 2026-01-31T12:00:00+01:00")
        return int((time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp() * 1000)
    if by_duration is not None:
        parts = _DURATION.fullmatch(by_duration)
        given = {unit: float(n) for unit, n in parts.groupdict().items() if n} if parts else {}
        if not given:
            arguments.refuse("--by-duration", f"{by_duration!r} is not a duration such as PT1H30M or P1D")
        return log.environment.now_ms() - int(timedelta(**given).total_seconds() * 1000)
    return None


def _at_time(log: Log, partitions: Iterable[TopicPartition], ms: int) -> Offsets:
    from pyspark_log.reading.groups import offsets_at

    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    found: Offsets = {}
    for topic, numbers in by_topic.items():
        found |= {(topic, number): at for number, at in offsets_at(log.topic(topic), numbers, ms).items()}
    return found


def _read_file(file: Path, group: str) -> Offsets:
    """Return the offsets of the group, or those of lines without one."""
    found = offset_files.read_offsets(str(file))
    chosen = found.get(group, found.get(None))
    if chosen is None:
        raise InvalidInput(f"{file} has no offsets of group {group!r}; choose another file, or correct it")
    return chosen


def _show(group: str, offsets: Offsets, committed: Offsets, *, executed: bool, export: bool, json: bool) -> None:
    if export:
        offset_files.print_offsets({group: offsets}, named=False)
        return
    documents: list[dict[str, Any]] = [
        {"topic": topic, "partition": number, "committed": committed.get((topic, number)), "new": offset}
        for (topic, number), offset in offsets.items()
    ]
    if json:
        output.print_json({"group": group, "reset": executed, "partitions": documents})
        return
    rows = [
        (topic, str(number), committed.get((topic, number), "none"), offset)
        for (topic, number), offset in offsets.items()
    ]
    output.print_table(("topic", "partition", "committed", "new"), rows)
    typer.echo(
        f"reset group {group} in {counted(len(offsets), 'partition')}"
        if executed
        else "nothing was changed; add --execute to reset the offsets"
    )
