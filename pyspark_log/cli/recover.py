"""`pyspark-log recover`: how far a node's segments are good, after an unclean stop or without a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.audit.unrolled import KnownTopic
    from pyspark_log_coordinator.rebuild.folder_scan import TopicFolder
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
    """Check a node's rows, and make lost indexes again.

    Checks the segments from the recovery points on, and all rows that are not in segments yet. The node's folder is
    enough: if it has no journal, the topic's description says where rows belong, and a damaged file that is newer is
    named. The exit code is 1 if anything is damaged. Of a node that is given by its id the folder is
    then held against the journals: segments of rows that were cut while it was away are removed.
    """
    from pyspark_log.cli import output
    from pyspark_log_storage.errors import UnknownTopic
    from pyspark_log_storage.names import check_topic

    for topic in topics or ():
        check_topic(topic)
    store = _store_of(path, node)
    names = topics or list(store.folders("topics/"))
    known = _known_by(path, store, node)
    found = []
    for topic in names:
        here = _recovered(store, topic, known, everything=everything, dry_run=dry_run)
        if not here and topics:
            message = f"there are no checkpoints of a topic {topic!r} at {store.url}, and no rows; check name and path"
            raise UnknownTopic(topic, message)
        found += here
    returned = [] if node is None or "/" in node else _returned(path, node, topics, dry_run=dry_run)
    if json:
        output.print_json(*found, *returned)
    else:
        if found:
            _print(found, with_topic=len(topics or ()) != 1)
        else:
            typer.echo(f"there are no checkpoints and no rows at {store.url} yet, so there is nothing to check")
        _print_returned(returned, dry_run=dry_run)
        if node is not None:
            _print_next(store, node, is_damaged=any(each["damage"] is not None for each in found))
    if any(each["damage"] is not None for each in found):
        raise typer.Exit(1)


def _store_of(path: str, node: str | None) -> Store:
    """Return the store of a node. Only where its id is given the cluster is asked for it."""
    from pyspark_log.client.opening import open_log
    from pyspark_log_coordinator.cluster.nodes import node_of
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
    store: Store, topic: str, known: Callable[[TopicFolder], KnownTopic | None], *, everything: bool, dry_run: bool
) -> list[dict[str, Any]]:
    """Return what was found of each partition of each life of the topic, and of append files that are damaged.

    `known` tells where the rows of append files belong.
    """
    import msgspec

    from pyspark_log_coordinator.audit import unrolled
    from pyspark_log_coordinator.rebuild.folder_scan import TopicFolder
    from pyspark_log_storage import checkpoints, recovery
    from pyspark_log_storage.node import read_marker

    marker = read_marker(store)
    node = None if marker is None else marker.node
    found: list[dict[str, Any]] = []
    for topic_id in store.folders(f"topics/{topic}/"):
        life = TopicFolder(topic, topic_id)
        described = known(life)
        partitions = described.topic.partitions if described is not None else ()
        points = _recovery_points(store, f"{life.prefix}{checkpoints.RECOVERY_POINT}")
        with_rows = [number for number, each in enumerate(partitions) if each.chunks]
        for partition in sorted({*points, *with_rows}):
            where, point = f"{life.prefix}{partition}/", points.get(partition, 0)
            newer = unrolled.NOTHING
            if described is not None and partition in with_rows:
                newer = unrolled.check(store, life, described.topic, partition, point, node)
            begin = recovery.first_offset(store, where, point) if everything else point
            one = recovery.recover(store, where, begin, unrolled=newer.good, dry_run=dry_run)
            bad = newer.damage_behind(one.end_offset)
            # A bad chunk where the good rows end is the reason; a segment behind it only lacks what comes before.
            damage = bad.damage if bad is not None and bad.base_offset <= one.end_offset else one.damage
            damage = damage or (None if bad is None else bad.damage)
            found.append(
                {
                    "topic": topic,
                    "topic_id": topic_id,
                    "partition": partition,
                    "recovery_point": point,
                    "good_up_to": one.end_offset,
                    "checked": one.checked + newer.files,
                    "rebuilt": one.rebuilt,
                    "damage": None if damage is None else msgspec.to_builtins(damage),
                }
            )
        found += [
            {"topic": topic, "topic_id": topic_id, "partition": None, "damage": msgspec.to_builtins(each)}
            for each in unrolled.check_unplaced(store, life, described)
        ]
    return found


def _recovery_points(store: Store, key: str) -> dict[int, int]:
    """Return the recovery points of a topic's partitions, none if there is no checkpoint."""
    from pyspark_log_storage import checkpoints
    from pyspark_log_storage.errors import ObjectMissing

    try:
        points = checkpoints.decode_offsets(store.read(key), f"checkpoint {store.url}/{key}")
    except ObjectMissing:
        return {}
    return {partition: point for (_, partition), point in points.items()}


def _known_by(path: str, store: Store, node: str | None) -> Callable[[TopicFolder], KnownTopic | None]:
    """Return what tells where the rows of append files belong: the journals if the node is given by its id.

    Otherwise the node's folder alone, for the journals may be lost.
    """
    from pyspark_log.client.opening import open_log
    from pyspark_log_coordinator.audit import unrolled
    from pyspark_log_coordinator.environment import real_environment

    def by_folder(life: TopicFolder) -> KnownTopic | None:
        return unrolled.known(store, life, real_environment())

    if node is None or "/" in node:
        return by_folder
    log = open_log(path)

    def by_journal(life: TopicFolder) -> KnownTopic | None:
        record = log.topics().get(life.topic)
        if record is None or record.topic_id != life.topic_id:
            return by_folder(life)
        return unrolled.KnownTopic(log.topic(life.topic).journal.state, is_newest=True)

    return by_journal


def _returned(path: str, node: str, wanted: list[str] | None, *, dry_run: bool) -> list[dict[str, Any]]:
    """Hold the node's folder against the journals, remove strays, and return the partitions where something differs."""
    import msgspec

    from pyspark_log.client.opening import open_log
    from pyspark_log_coordinator.audit import returned_node

    log = open_log(path)
    found = []
    for name in sorted(log.topics()):
        if wanted is None or name in wanted:
            here = returned_node.inspect(log.topic(name), node)
            found += [each for each in here if each.strays or each.lacking or each.belongs_to < each.known_end]
            if not dry_run:
                returned_node.remove_strays(log, node, here)
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
        if each["partition"] is not None
    ]
    if rows:
        output.print_table(columns, rows)
    for each in found:
        if each["damage"] is None:
            continue
        topic = f"topic {each['topic']}, " if with_topic else ""
        key, why = each["damage"]["file"], each["damage"]["why"]
        if each["partition"] is None:
            typer.echo(f"{topic}append file {key}: {why}; only the topic's journal says where its rows belong")
        else:
            kind = "append file" if "/append/" in key else "segment"
            typer.echo(f"{topic}partition {each['partition']}, offset {each['good_up_to']}: {kind} {key}: {why}")


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
