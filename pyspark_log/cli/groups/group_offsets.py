"""`pyspark-log groups export` and `import`: the committed offsets of groups as a file, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.groups import offset_files
from pyspark_log.cli.output import counted
from pyspark_log.opening import open_log
from pyspark_log_storage.errors import InvalidInput, UnknownGroup

if TYPE_CHECKING:
    from pyspark_log.cli.groups.offset_files import Offsets
    from pyspark_log_coordinator.log.log import Log


@arguments.examples(
    "pyspark-log groups export etl > offsets.csv",
    "pyspark-log groups export --all-groups > offsets.csv",
)
def export(
    path: arguments.Path,
    groups: Annotated[
        list[str] | None, typer.Argument(metavar="GROUP", help="The groups' group.id.", show_default=False)
    ] = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="All groups of the cluster.")] = False,
    json: arguments.Json = False,
) -> None:
    """Print the committed offsets of groups as CSV.

    import reads them again. The lines are those of kafka-consumer-groups: topic,partition,offset if one GROUP is
    given, otherwise group,topic,partition,offset.
    """
    from pyspark_log_coordinator.group.state import GroupState

    if bool(groups) == all_groups:
        arguments.refuse("GROUP", "give the groups, or --all-groups")
    log = open_log(path)
    wanted = dict.fromkeys(groups or ())
    if all_groups:
        handles = {name: log.group_handle(record) for name, record in sorted(log.groups().items())}
        wanted = dict.fromkeys(name for name, each in handles.items() if each.begin().state is not GroupState.DEAD)
    found = {name: _committed(log, name) for name in wanted}
    if json:
        output.print_json(*({"group": name, "partitions": _documents(each, "offset")} for name, each in found.items()))
    else:
        offset_files.print_offsets(found, named=all_groups or len(wanted) > 1)


@arguments.examples(
    "pyspark-log groups import offsets.csv",
    "pyspark-log groups import offsets.csv --execute",
    "pyspark-log groups import offsets.csv --group etl --execute",
)
def import_(
    path: arguments.Path,
    file: Annotated[str, typer.Argument(metavar="FILE", help="File to read; - is stdin.", show_default=False)],
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP",
            help="Import this group alone, or, if the lines name no group, into this one; can be repeated "
            "(default: all groups of the file).",
            show_default=False,
        ),
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Reset the offsets; without it, only show them.")] = False,
    json: arguments.Json = False,
) -> None:
    """Reset the offsets of groups to those of a file.

    The file comes from groups export, or from kafka-consumer-groups --export. A running streaming query follows the
    reset with its next micro-batch, a stopped one when it starts again. Other consumers of the groups must be stopped.
    Either all groups are reset, or nothing is changed.
    """
    from pyspark_log.reading.groups import reset, within_log
    from pyspark_log_storage.names import check_group

    wanted = _chosen(offset_files.read_offsets(file), group, file)
    log = open_log(path)
    offsets = {}
    for name, each in wanted.items():
        check_group(name)
        offsets[name] = within_log(log, each)
    before = {name: _committed_if_any(log, name) for name in offsets}
    if execute:
        _check_resettable(log, offsets)
        for name, each in offsets.items():
            reset(log, name, each)
    if json:
        output.print_json(
            *(
                {"group": name, "reset": execute, "partitions": _documents(each, "new", before[name])}
                for name, each in offsets.items()
            )
        )
        return
    rows = [
        (name, topic, str(number), before[name].get((topic, number), "none"), offset)
        for name, each in offsets.items()
        for (topic, number), offset in each.items()
    ]
    output.print_table(("group", "topic", "partition", "committed", "new"), rows)
    typer.echo(
        f"reset {counted(len(offsets), 'group')} in {counted(len(rows), 'partition')}"
        if execute
        else "nothing was changed; add --execute to reset the offsets"
    )


def _chosen(found: dict[str | None, Offsets], group: list[str] | None, file: str) -> dict[str, Offsets]:
    """Return the offsets to import, by group. Raise `InvalidInput` if the file does not have what is asked for."""
    if not found:
        raise InvalidInput(f"{file} has no offsets; make it with: pyspark-log groups export")
    if None in found:
        if group is None or len(group) != 1:
            arguments.refuse("--group", f"the lines of {file} name no group; give the one to which they belong")
        return {group[0]: found[None]}
    named = {name: each for name, each in found.items() if name is not None}
    for name in group or ():
        if name not in named:
            raise InvalidInput(f"{file} has no offsets of group {name!r}; it has those of {', '.join(named)}")
    return {name: each for name, each in named.items() if not group or name in group}


def _check_resettable(log: Log, groups: dict[str, Offsets]) -> None:
    """Raise what the reset of any of the groups would raise, before the first is reset."""
    from pyspark_log.reading.groups import check_reset

    for name, offsets in groups.items():
        check_reset(log, name, offsets)


def _committed(log: Log, group: str) -> Offsets:
    from pyspark_log.reading.groups import lags

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
