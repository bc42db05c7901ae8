"""`pyspark-log recover`: how far a node's segments are good, after an unclean stop or without a journal."""

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
  pyspark-log recover --node 1
  pyspark-log recover --node /mnt/disk1
"""


def recover(
    path: arguments.Path,
    topics: arguments.Topics = None,
    node: Annotated[
        str | None,
        typer.Option(metavar="NODE", help="A node's id, or the address of its store; else the store at the path."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Read all segments, not only those from the recovery point on.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Make no index again.")] = False,
    json: arguments.Json = False,
) -> None:
    """Check a node's segments, and make lost indexes again.

    Checks from the recovery points on. Reads the folders and the node's own checkpoints, and not the topics' journals.
    The exit code is 1 where good rows end before the last segment does. Of a node that is given by its id the folder is
    then held against the journals: segments of rows that were cut while it was away are removed.
    """
    from pyspark_log.cli import output
    from pyspark_log_storage.names import check_topic

    for topic in topics or ():
        check_topic(topic)
    store = _store_of(path, node)
    names = topics or list(store.folders("topics/"))
    found = [
        each for topic in names for each in _recovered(store, topic, topics, everything=everything, dry_run=dry_run)
    ]
    returned = [] if node is None or "/" in node else _returned(path, node, topics, dry_run=dry_run)
    if json:
        output.print_json(*found, *returned)
    else:
        if found:
            _print(found, with_topic=len(topics or ()) != 1)
        else:
            typer.echo(f"there are no checkpoints at {store.url} yet, so there is nothing to check")
        _print_returned(returned, dry_run=dry_run)
        if node is not None:
            _print_next(store, node, is_damaged=any(each["damage"] is not None for each in found))
    if any(each["damage"] is not None for each in found):
        raise typer.Exit(1)


def _store_of(path: str, node: str | None) -> Store:
    """Return the store of a node. Only where its id is given the cluster is asked for it."""
    from pyspark_log.opening import open_log
    from pyspark_log_coordinator.nodes import node_of
    from pyspark_log_storage.errors import InvalidOption, NoCluster
    from pyspark_log_storage.layout import TOPICS
    from pyspark_log_storage.node import read_marker, require_marker
    from pyspark_log_storage.store import absolute_urls, open_store

    if node is None or "/" in node:
        url, *others = absolute_urls(path if node is None else node)
        if others:
            raise InvalidOption("node", "the address names several stores; say which node to look at with --node")
        store = open_store(url)
        if read_marker(store) is None and not any(True for _ in store.folders(TOPICS)):
            raise NoCluster(f"there is no node at {url}: neither a marker nor topics; check the address")
        return store
    log = open_log(path)
    member = node_of(log.cluster.state.nodes, node)
    store = log.node_store(node)
    require_marker(store, node, member.incarnation)
    return store


def _recovered(
    store: Store, topic: str, wanted: list[str] | None, *, everything: bool, dry_run: bool
) -> list[dict[str, Any]]:
    """Return what was found of each partition of each life of the topic that has checkpoints.

    Raises `UnknownTopic` where there are none and the topic is one of those that were asked for.
    """
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
                    "topic": topic,
                    "topic_id": folder.split("/")[-2],
                    "partition": partition,
                    "recovery_point": point,
                    "good_up_to": one.end_offset,
                    "checked": one.checked,
                    "rebuilt": one.rebuilt,
                    "damage": None if one.damage is None else msgspec.to_builtins(one.damage),
                }
            )
    if not found and wanted:
        message = f"there are no checkpoints of a topic {topic!r} at {store.url}; check the name and the path"
        raise UnknownTopic(topic, message)
    return found


def _returned(path: str, node: str, wanted: list[str] | None, *, dry_run: bool) -> list[dict[str, Any]]:
    """Hold the node's folder against the journals, remove strays, and return the partitions where something differs."""
    import msgspec

    from pyspark_log.opening import open_log
    from pyspark_log_coordinator import returning

    log = open_log(path)
    found = []
    for name in sorted(log.topics()):
        if wanted is None or name in wanted:
            here = returning.inspect(log, log.topic(name), node)
            found += [each for each in here if each.strays or each.lacking or each.belongs_to < each.known_end]
            if not dry_run:
                returning.remove_strays(log, node, here)
    return [msgspec.to_builtins(each) for each in found]


def _print_returned(returned: list[dict[str, Any]], *, dry_run: bool) -> None:
    for each in returned:
        where = f"topic {each['topic']}, partition {each['partition']}"
        if each["belongs_to"] < each["known_end"]:
            typer.echo(
                f"{where}: the log has other rows than this node from offset {each['belongs_to']} on: what it had up "
                f"to {each['known_end']} was cut while it was away"
            )
        for stray in each["strays"]:
            done = "would be removed" if dry_run else "removed"
            typer.echo(f"{where}: segment {stray['key']}: its rows from {stray['cut']} on were cut; {done}")
        for name in each["lacking"]:
            typer.echo(
                f"{where}: segment {name} is not there, and the journal says that it is: the disk is an older one"
            )


def _print(found: list[dict[str, Any]], *, with_topic: bool) -> None:
    from pyspark_log.cli import output

    names = ["topic"] if with_topic else []
    columns = [*names, "partition", "recovery point", "good up to", "checked", "rebuilt"]
    rows = [
        (
            *(each[name] for name in names),
            each["partition"],
            each["recovery_point"],
            each["good_up_to"],
            len(each["checked"]),
            len(each["rebuilt"]),
        )
        for each in found
    ]
    output.print_table(columns, rows)
    for each in found:
        if each["damage"] is not None:
            topic = f"topic {each['topic']}, " if with_topic else ""
            where = f"{topic}partition {each['partition']}, offset {each['good_up_to']}"
            typer.echo(f"{where}: segment {each['damage']['segment']}: {each['damage']['why']}")


def _print_next(store: Store, node: str, *, is_damaged: bool) -> None:
    """Say what brings the node back into service."""
    from pyspark_log_storage.node import read_marker

    if "/" in node:
        marker = read_marker(store)
        if marker is None:
            typer.echo(f"the store at {store.url} has no marker: it is no node; see pyspark-log nodes add, and renew")
            return
        node = marker.node
    if is_damaged:
        typer.echo(f"next: pyspark-log verify --node {node} --repair copies what is damaged from another node")
    typer.echo(f"next: pyspark-log node run {node} copies what it misses, and lets it join the ISR again")
