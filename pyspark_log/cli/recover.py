"""`pyspark-log recover`: how far a topic's segments are good, after an unclean stop or without a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments

if TYPE_CHECKING:
    from pyspark_log_storage.store import Store

EXAMPLES = """\b
Examples:
  pyspark-log recover flights
  pyspark-log recover flights --all --dry-run
"""


def recover(
    topic: arguments.Topic,
    path: arguments.Path,
    everything: Annotated[
        bool, typer.Option("--all", help="Read all segments, not only those from the recovery point on.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Make no index again.")] = False,
    json: arguments.Json = False,
) -> None:
    """Check a topic's segments from the recovery point on, and make lost indexes again.

    Reads the folders and their checkpoints, and not the journal. The exit code is 1 where good rows end before the last
    segment does.
    """
    from pyspark_log.cli import output
    from pyspark_log_storage.names import check_topic
    from pyspark_log_storage.store import absolute_url, open_store

    check_topic(topic)
    found = _recovered(open_store(absolute_url(path)), topic, everything=everything, dry_run=dry_run)
    if json:
        output.print_json(*found)
    else:
        columns = ("partition", "recovery_point", "good_up_to", "checked", "rebuilt")
        rows = [
            (each["partition"], each["recovery_point"], each["good_up_to"], len(each["checked"]), len(each["rebuilt"]))
            for each in found
        ]
        output.print_table([column.replace("_", " ") for column in columns], rows)
        for each in found:
            if each["damage"] is not None:
                where = f"partition {each['partition']}, offset {each['good_up_to']}"
                typer.echo(f"{where}: segment {each['damage']['segment']}: {each['damage']['why']}")
    if any(each["damage"] is not None for each in found):
        raise typer.Exit(1)


def _recovered(store: Store, topic: str, *, everything: bool, dry_run: bool) -> list[dict[str, Any]]:
    """Return what was found of each partition of each life of the topic that has checkpoints."""
    import msgspec

    from pyspark_log_storage import checkpoints, recovery
    from pyspark_log_storage.errors import UnknownTopic

    found = []
    for key in store.list(f"topics/{topic}/"):
        if not key.endswith(f"/{checkpoints.RECOVERY_POINT}"):
            continue
        folder = key.removesuffix(checkpoints.RECOVERY_POINT)
        points = checkpoints.decode_offsets(store.read(key), f"checkpoint {store.url}/{key}")
        for (_, partition), point in points.items():
            where = f"{folder}{partition}/"
            begin = recovery.first_offset(store, where, point) if everything else point
            one = recovery.recover(store, where, begin, dry_run=dry_run)
            found.append(
                {
                    "topic_id": folder.split("/")[-2],
                    "partition": partition,
                    "recovery_point": point,
                    "good_up_to": one.end_offset,
                    "checked": one.checked,
                    "rebuilt": one.rebuilt,
                    "damage": None if one.damage is None else msgspec.to_builtins(one.damage),
                }
            )
    if not found:
        message = f"there are no checkpoints of a topic {topic!r} at {store.url}; check the name and the path"
        raise UnknownTopic(topic, message)
    return found
