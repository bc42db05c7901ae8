"""`pyspark-log groups reset-offsets`, `export` and `import`: the committed offsets of groups, and files of them.

Positions are those of kafka-consumer-groups, and so is the format of files, which are CSV:

    topic,partition,offset              of one group
    group,topic,partition,offset        of several groups

A name that has a comma or a quotation mark is quoted.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.command import Result, command
from pyspark_log.cli.groups.groups import expire_dead_members
from pyspark_log.documents.text import time_ms_of
from pyspark_log.reading.groups import LATEST, check_reset, lags, reset, reset_to, within_log
from pyspark_log_coordinator.group.state import GroupState
from pyspark_log_storage.errors import InvalidInput, LogError, UnknownGroup
from pyspark_log_storage.names import check_group

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import Log

TopicPartition = tuple[str, int]
Offsets = dict[TopicPartition, int]
_DURATION = re.compile(
    r"P(?:(?P<days>\d{1,6})D)?"
    r"(?:T(?:(?P<hours>\d{1,6})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9}(?:\.\d+)?)S)?)?"
)
STDIN = "-"
_PARTITION = re.compile(r"[0-9]{1,9}")
_OFFSET = re.compile(r"[0-9]{1,18}")
_FIELDS = {3: "topic,partition,offset", 4: "group,topic,partition,offset"}


@command(
    "pyspark-log groups reset-offsets etl --topic flights --to-earliest",
    "pyspark-log groups reset-offsets etl --topic flights:0,1 --shift-by -100 --execute",
    "pyspark-log groups reset-offsets etl --all-topics --by-duration PT1H --execute",
    "pyspark-log groups reset-offsets etl --all-topics --to-current --export > offsets.csv",
    "pyspark-log groups reset-offsets etl --from-file offsets.csv --execute",
)
def reset_offsets(  # noqa: PLR0913 -- the options of a command
    log: Log,
    *,
    group: arguments.GroupId,
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
) -> Result:
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
    committed = _committed_if_any(log, group)
    if from_file is not None:
        offsets = within_log(log, _chosen(_read_offsets(str(from_file)), [group], str(from_file))[group])
    else:
        partitions = sorted(committed) if all_topics else _partitions(log, topic or ())
        offset = to_offset if to_offset is not None else LATEST if to_latest else 0
        ms = _time(log, to_datetime, by_duration)
        offsets = reset_to(log, partitions, committed, offset=offset, ms=ms, shift=0 if to_current else shift_by)
    if execute:
        expire_dead_members(log, group)
        reset(log, group, offsets)
    document = {"group": group, "reset": execute, "partitions": _documents(offsets, "new", committed)}
    return Result(document, text=_csv({group: offsets}, named=False) if export else None)


def _require_one(chosen: dict[str, bool], what: str) -> None:
    given = [name for name, is_given in chosen.items() if is_given]
    if len(given) != 1:
        names = ", ".join(chosen)
        arguments.refuse(given[-1] if given else next(iter(chosen)), f"give {what} with exactly one of {names}")


def _partitions(log: Log, topics: Iterable[str]) -> list[TopicPartition]:
    partitions = []
    for text in topics:
        name, colon, numbers = text.partition(":")
        handle = log.topic(name)
        if colon and not re.fullmatch(r"\d{1,9}(,\d{1,9})*", numbers):
            arguments.refuse("--topic", f"{text!r} is not TOPIC:P,P, such as flights:0,1")
        everything = range(len(handle.partitions))
        for number in sorted({int(each) for each in numbers.split(",")}) if colon else everything:
            handle.partition(number)  # raises if there is none
            partitions.append((name, number))
    return partitions


def _time(log: Log, to_datetime: str | None, by_duration: str | None) -> int | None:
    """Return the chosen time in ms. End the program if it is invalid."""
    if to_datetime is not None:
        try:
            return time_ms_of(to_datetime)
        except InvalidInput as error:
            arguments.refuse("--to-datetime", error.message)
    if by_duration is not None:
        parts = _DURATION.fullmatch(by_duration)
        given = {unit: float(n) for unit, n in parts.groupdict().items() if n} if parts else {}
        if not given:
            arguments.refuse("--by-duration", f"{by_duration!r} is not a duration such as PT1H30M or P1D")
        return log.environment.now_ms() - int(timedelta(**given).total_seconds() * 1000)
    return None


@command(
    "pyspark-log groups export etl > offsets.csv",
    "pyspark-log groups export --all-groups > offsets.csv",
)
def export(
    log: Log,
    groups: Annotated[list[str] | None, typer.Argument(metavar="GROUP", help="The groups' group.id.")] = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="All groups of the cluster.")] = False,
) -> Result:
    """Print the committed offsets of groups as CSV.

    import reads them again. The lines are those of kafka-consumer-groups: topic,partition,offset if one GROUP is
    given, otherwise group,topic,partition,offset.
    """
    if bool(groups) == all_groups:
        arguments.refuse("GROUP", "give the groups, or --all-groups")
    wanted = dict.fromkeys(groups or ())
    if all_groups:
        handles = {name: log.group_handle(record) for name, record in sorted(log.groups().items())}
        wanted = dict.fromkeys(name for name, each in handles.items() if each.refresh().state is not GroupState.DEAD)
    offsets = {name: _committed(log, name) for name in wanted}
    documents = [{"group": name, "partitions": _documents(each, "offset")} for name, each in offsets.items()]
    return Result(documents, text=_csv(offsets, named=all_groups or len(wanted) > 1))


@command(
    "pyspark-log groups import offsets.csv",
    "pyspark-log groups import offsets.csv --execute",
    "pyspark-log groups import offsets.csv --group etl --execute",
)
def import_(
    log: Log,
    file: Annotated[str, typer.Argument(metavar="FILE", help="File to read; - is stdin.")],
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP",
            help="Import this group alone, or, if the lines name no group, into this one; can be repeated "
            "(default: all groups of the file).",
        ),
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Reset the offsets; without it, only show them.")] = False,
) -> Result:
    """Reset the offsets of groups to those of a file.

    The file comes from groups export, or from kafka-consumer-groups --export. A running streaming query follows the
    reset with its next micro-batch, a stopped one when it starts again. Other consumers of the groups must be stopped.
    Nothing is changed unless all groups can be reset. They are then reset one after the other: if one fails
    nevertheless, the command names those that were reset before it.
    """
    wanted = _chosen(_read_offsets(file), group, file)
    offsets = {}
    for name, each in wanted.items():
        check_group(name)
        offsets[name] = within_log(log, each)
    before = {name: _committed_if_any(log, name) for name in offsets}
    if execute:
        for name, each in offsets.items():  # before the first is reset
            expire_dead_members(log, name)
            check_reset(log, name, each)
        _reset_all(log, offsets)
    shown = [
        {"group": name, "reset": execute, "partitions": _documents(each, "new", before[name])}
        for name, each in offsets.items()
    ]
    return Result(shown, records=True)


def _chosen(groups: dict[str | None, Offsets], group: list[str] | None, file: str) -> dict[str, Offsets]:
    """Return the offsets to import, by group. Raise `InvalidInput` if the file does not have what is asked for."""
    if not groups:
        raise InvalidInput(f"{file} has no offsets; make it with: pyspark-log groups export")
    if None in groups:
        if group is None or len(group) != 1:
            arguments.refuse("--group", f"the lines of {file} name no group; give the one to which they belong")
        return {group[0]: groups[None]}
    named = {name: each for name, each in groups.items() if name is not None}
    for name in group or ():
        if name not in named:
            raise InvalidInput(f"{file} has no offsets of group {name!r}; it has those of {', '.join(named)}")
    return {name: each for name, each in named.items() if not group or name in group}


def _reset_all(log: Log, groups: dict[str, Offsets]) -> None:
    """Reset the groups, each by an entry of its own journal. Raises `LogError`."""
    left = list(groups)
    for name, offsets in groups.items():
        try:
            reset(log, name, offsets)
        except LogError:
            if done := [each for each in groups if each not in left]:
                output.print_error(
                    f"{', '.join(done)} had been reset; {', '.join(left)} not: import these again with --group"
                )
            raise
        left.remove(name)


def _committed(log: Log, group: str) -> Offsets:
    state = log.group(group).state
    return {(each.topic, each.partition): each.committed for each in lags(log, state)}


def _committed_if_any(log: Log, group: str) -> Offsets:
    try:
        return _committed(log, group)
    except UnknownGroup:
        return {}


def _documents(offsets: Offsets, word: str, before: Offsets | None = None) -> list[dict[str, Any]]:
    return [
        {
            "topic": topic,
            "partition": number,
            **({} if before is None else {"committed": before.get((topic, number))}),
            word: offset,
        }
        for (topic, number), offset in offsets.items()
    ]


def _csv(groups: Mapping[str, Offsets], *, named: bool) -> str:
    """Return the offsets of groups as lines; each names its group if `named` is set."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    for group, offsets in groups.items():
        for (topic, number), offset in sorted(offsets.items()):
            writer.writerow([*([group] if named else []), topic, number, offset])
    return lines.getvalue()


def _read_offsets(file: str) -> dict[str | None, Offsets]:
    """Return the offsets in a file by group; None stands for the group that the file does not name.

    `-` is stdin. Raises `InvalidInput` for a line that is wrong, or a partition that has two.
    """
    name = "stdin" if file == STDIN else file
    text = sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8", errors="replace")
    groups: dict[str | None, Offsets] = {}
    expected = 0
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):  # of editors and shells of Windows
        if not line.strip():
            continue
        fields = _fields(line)
        wanted = " or ".join(_FIELDS.values()) if not expected else _FIELDS[expected]
        if len(fields) not in _FIELDS or len(fields) != (expected or len(fields)) or not _are_offsets(fields):
            raise InvalidInput(f"{name}, line {number}: {line.strip()[:100]!r} is not {wanted}; correct it")
        expected = len(fields)
        *group, topic, partition, offset = fields
        offsets = groups.setdefault(group[0] if group else None, {})
        if (topic, int(partition)) in offsets:
            raise InvalidInput(
                f"{name}, line {number}: topic {topic!r}, partition {partition} has an offset in an earlier line too; "
                "remove one of them"
            )
        offsets[topic, int(partition)] = int(offset)
    return groups


def _fields(text: str) -> list[str]:
    try:
        fields = next(csv.reader([text], strict=True))
    except csv.Error:
        return []
    return [*fields[:-3], *(each.strip() for each in fields[-3:])]  # blanks around a group's name are part of it


def _are_offsets(fields: list[str]) -> bool:
    *names, partition, offset = fields
    return all(names) and bool(_PARTITION.fullmatch(partition) and _OFFSET.fullmatch(offset))
