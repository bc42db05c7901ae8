"""`pyspark-log recover`: check the files of one node, after an unclean shutdown or without journals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.opening import open_log
from pyspark_log_storage.errors import InvalidOption, NoCluster, ObjectMissing, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log_coordinator.audit.unrolled import KnownTopic
    from pyspark_log_coordinator.rebuild.folder_scan import TopicFolder
    from pyspark_log_storage.stores.store import Store


@arguments.examples(
    "pyspark-log recover flights",
    "pyspark-log recover flights --all --dry-run",
    "pyspark-log recover --node 1",
    "pyspark-log recover --node /mnt/disk1",
)
def recover(
    path: arguments.Path,
    topics: arguments.Topics = None,
    node: Annotated[
        str | None,
        typer.Option(metavar="NODE", help="Id of a node, or address of its store (default: the store at --path)."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Check all segments, not only those after the recovery point.")
    ] = False,
    dry_run: arguments.DryRun = False,
    json: arguments.Json = False,
) -> None:
    """Check the files of one node and rebuild lost indexes.

    Use it after an unclean shutdown, or if the journals are lost. Checks the segments after the recovery points, and
    all rows that are not in segments yet, and shows up to which offset the rows are intact. The exit code is 1 if a
    file is damaged.

    If --node is an id, the files are also compared with the journals: segments with rows that were truncated while the
    node was unreachable are deleted. Otherwise the node's folder is enough, and no journal is read.
    """
    from pyspark_log_storage.names import check_topic, is_topic

    for topic in topics or ():
        check_topic(topic)
    store = _store_of(path, node)
    names = topics or list(filter(is_topic, store.folders("topics/")))
    known = _known_by(path, store, node)
    found = []
    for topic in names:
        here = _recovered(store, topic, known, everything=everything, dry_run=dry_run)
        if not here and topics:
            message = (
                f"topic {topic!r} has no checkpoints and no description at {store.url}; check its name and the address"
            )
            raise UnknownTopic(topic, message)
        found += here
    returned = [] if node is None or "/" in node else _returned(path, node, topics, dry_run=dry_run)
    if json:
        output.print_json(*found, *returned)
    else:
        if found:
            _print(found, with_topic=len(topics or ()) != 1)
        else:
            typer.echo(f"nothing to check: no checkpoints and no descriptions of topics at {store.url}")
        _print_returned(returned, dry_run=dry_run)
        if node is not None:
            _print_next(store, node, is_damaged=any(each["damage"] is not None for each in found))
    if any(each["damage"] is not None for each in found):
        raise typer.Exit(1)


def _store_of(path: str, node: str | None) -> Store:
    """Return the store of a node. The cluster is opened only for a node id."""
    from pyspark_log_storage.layout import TOPICS
    from pyspark_log_storage.objects.node import read_marker, require_marker
    from pyspark_log_storage.stores.addresses import absolute_urls, open_store

    if node is None or "/" in node:
        url, *others = absolute_urls(path if node is None else node)
        if others:
            raise InvalidOption("node", "the address has several stores; select a node with --node")
        store = open_store(url)
        if read_marker(store) is None and not any(True for _ in store.folders(TOPICS)):
            raise NoCluster(f"no node at {url}: it has neither a node marker nor topics; check the address")
        return store
    log = open_log(path)
    member = log.node(node)
    store = log.node_store(node)
    require_marker(store, node, member.incarnation)
    return store


def _recovered(
    store: Store, topic: str, known: Callable[[TopicFolder], KnownTopic | None], *, everything: bool, dry_run: bool
) -> list[dict[str, Any]]:
    """Return a document for each partition of each incarnation of the topic, and for damaged append files.

    `known` returns the state of a topic, which has the offsets of the rows in append files.
    """
    import msgspec

    from pyspark_log_coordinator.audit import unrolled
    from pyspark_log_coordinator.rebuild.folder_scan import TopicFolder
    from pyspark_log_storage.columns.schema import decode_all
    from pyspark_log_storage.objects import checkpoints
    from pyspark_log_storage.objects.node import read_marker
    from pyspark_log_storage.segments import recovery

    marker = read_marker(store)
    node = None if marker is None else marker.node
    found: list[dict[str, Any]] = []
    for topic_id in store.folders(f"topics/{topic}/"):
        folder = TopicFolder(topic, topic_id)
        described = known(folder)
        partitions = described.topic.partitions if described is not None else ()
        # Without a description nobody knows whether the topic is typed.
        schemas = None if described is None else decode_all(described.topic.schemas, f"topic {topic!r}")
        points = _recovery_points(store, f"{folder.prefix}{checkpoints.RECOVERY_POINT}")
        with_rows = [number for number, each in enumerate(partitions) if each.chunks]
        for partition in sorted({*points, *with_rows}):
            where, point = f"{folder.prefix}{partition}/", points.get(partition, 0)
            newer = unrolled.NOTHING
            if described is not None and partition in with_rows:
                newer = unrolled.check(store, folder, described.topic, partition, point, node)
            begin = recovery.first_offset(store, where, point) if everything else point
            one = recovery.recover(store, where, begin, schemas=schemas, unrolled=newer.good, dry_run=dry_run)
            bad = newer.damage_behind(one.end_offset)
            # A damaged chunk at the end of the intact rows is the cause; a later segment only lacks the rows before it.
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
            for each in unrolled.check_unplaced(store, folder, described)
        ]
    return found


def _recovery_points(store: Store, key: str) -> dict[int, int]:
    """Return the recovery points of a topic's partitions; empty without a checkpoint."""
    from pyspark_log_storage.objects import checkpoints

    try:
        points = checkpoints.decode_offsets(store.read(key), f"checkpoint {store.url}/{key}")
    except ObjectMissing:
        return {}
    return {partition: point for (_, partition), point in points.items()}


def _known_by(path: str, store: Store, node: str | None) -> Callable[[TopicFolder], KnownTopic | None]:
    """Return a function that returns the state of a topic: from the journals if `node` is an id.

    Otherwise it uses the node's folder alone, because the journals may be lost.
    """
    from pyspark_log_coordinator.audit import unrolled
    from pyspark_log_coordinator.environment import real_environment

    def by_folder(folder: TopicFolder) -> KnownTopic | None:
        return unrolled.known(store, folder, real_environment())

    if node is None or "/" in node:
        return by_folder
    log = open_log(path)

    def by_journal(folder: TopicFolder) -> KnownTopic | None:
        record = log.topics().get(folder.topic)
        if record is None or record.topic_id != folder.topic_id:
            return by_folder(folder)
        return unrolled.KnownTopic(log.topic(folder.topic).state, is_newest=True)

    return by_journal


def _returned(path: str, node: str, wanted: list[str] | None, *, dry_run: bool) -> list[dict[str, Any]]:
    """Compare the node's folder with the journals, delete stray segments, and return the partitions that differ."""
    import msgspec

    from pyspark_log_coordinator.audit import returned_node

    log = open_log(path)
    found = []
    for name in sorted(log.topics()):
        if wanted is None or name in wanted:
            handle = log.topic(name)
            here = returned_node.inspect(handle, node)
            found += [each for each in here if each.strays or each.lacking or each.belongs_to < each.known_end]
            if not dry_run:
                returned_node.remove_strays(handle, node, here)
    return [msgspec.to_builtins(each) for each in found]


def _print_returned(returned: list[dict[str, Any]], *, dry_run: bool) -> None:
    for each in returned:
        where = f"topic {each['topic']}, partition {each['partition']}"
        if each["belongs_to"] < each["known_end"]:
            typer.echo(
                f"{where}: the node's rows from offset {each['belongs_to']} to {each['known_end'] - 1} were truncated "
                "from the log while it was unreachable"
            )
        for stray in each["strays"]:
            done = "would be deleted" if dry_run else "deleted"
            typer.echo(f"{where}: segment {stray['key']}: rows from {stray['cut']} on were truncated; {done}")
        for name in each["lacking"]:
            typer.echo(f"{where}: segment {name} is missing although the journal names it; the disk may be a backup")


def _print(found: list[dict[str, Any]], *, with_topic: bool) -> None:
    names = ["topic"] if with_topic else []
    columns = [*names, "partition", "recovery point", "intact up to", "checked", "rebuilt"]
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
            typer.echo(f"{topic}append file {key}: {why}; the offsets of its rows are only in the topic's journal")
        else:
            kind = "append file" if "/append/" in key else "segment"
            typer.echo(f"{topic}partition {each['partition']}, offset {each['good_up_to']}: {kind} {key}: {why}")


def _print_next(store: Store, node: str, *, is_damaged: bool) -> None:
    """Print the commands that return the node to service."""
    from pyspark_log_storage.objects.node import read_marker

    is_address = "/" in node
    if is_address:
        marker = read_marker(store)
        if marker is None:
            typer.echo(f"the store at {store.url} has no node marker; see pyspark-log nodes add and nodes renew")
            return
        node = marker.node
    # An address is for journals that do not answer: they may be back, or lost.
    condition = "if the journals can be read, " if is_address else ""
    if is_damaged:
        typer.echo(f"next: {condition}replace damaged files with pyspark-log verify --node {node} --repair")
    typer.echo(f"next: {condition}let the node catch up and rejoin the ISR with pyspark-log node run {node}")
    if is_address:
        typer.echo(
            "next: if all journals are lost, rebuild the cluster from the folders of its nodes with "
            "pyspark-log cluster rebuild"
        )
