"""`pyspark-log recover`: check the files of one node, after an unclean shutdown or without journals."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.output import Column
from pyspark_log.opening import open_log
from pyspark_log_storage.errors import InvalidOption, NoCluster, UnknownTopic

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import Log
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

    Use it after an unclean shutdown, or if the journals are lost. Checks the files with rows after the recovery points
    that the topic's journal names, or the description in the folder, and shows up to which offset the rows are intact.
    The exit code is 1 if a file is damaged.

    If --node is an id, the files are also compared with the journals: segments with rows that were truncated while the
    node was unreachable are deleted. Otherwise the node's folder is enough, and no journal is read.
    """
    import msgspec

    from pyspark_log_coordinator.audit import node_recovery
    from pyspark_log_coordinator.environment import real_environment
    from pyspark_log_storage.names import check_topic, is_topic

    for topic in topics or ():
        check_topic(topic)
    # The cluster is opened only for a node id.
    log = None if node is None or "/" in node else open_log(path)
    store = _store_at(path if node is None else node) if log is None or node is None else _store_of(log, node)
    found: list[dict[str, Any]] = []
    for topic in topics or filter(is_topic, store.folders("topics/")):
        done = node_recovery.recover(store, topic, real_environment(), log, everything=everything, dry_run=dry_run)
        here = [msgspec.to_builtins(each) for each in done]
        if not here and topics:
            message = (
                f"topic {topic!r} has no checkpoints and no description at {store.url}; check its name and the address"
            )
            raise UnknownTopic(topic, message)
        found += here
    returned = [] if log is None or node is None else _returned(log, node, topics, dry_run=dry_run)
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


def _store_at(address: str) -> Store:
    """Return the store at the address of a node."""
    from pyspark_log_storage.layout import TOPICS
    from pyspark_log_storage.objects.node import read_marker
    from pyspark_log_storage.stores.addresses import absolute_urls, open_store

    url, *others = absolute_urls(address)
    if others:
        raise InvalidOption("node", "the address has several stores; select a node with --node")
    store = open_store(url)
    if read_marker(store) is None and not any(True for _ in store.folders(TOPICS)):
        raise NoCluster(f"no node at {url}: it has neither a node marker nor topics; check the address")
    return store


def _store_of(log: Log, node: str) -> Store:
    """Return the store of a node."""
    from pyspark_log_storage.objects.node import require_marker

    member = log.node(node)
    store = log.node_store(node)
    require_marker(store, node, member.incarnation)
    return store


def _returned(log: Log, node: str, wanted: list[str] | None, *, dry_run: bool) -> list[dict[str, Any]]:
    """Compare the node's folder with the journals, delete stray segments, and return the partitions that differ."""
    import msgspec

    from pyspark_log_coordinator.audit import node_recovery

    found = []
    for name in sorted(log.topics()):
        if wanted is not None and name not in wanted:
            continue
        with contextlib.suppress(UnknownTopic):  # its deletion was interrupted, or came meanwhile
            handle = log.topic(name)
            here = node_recovery.inspect(handle, node)
            found += [each for each in here if each.strays or each.belongs_to < each.known_end]
            if not dry_run:
                node_recovery.remove_strays(handle, node, here)
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


def _print(found: list[dict[str, Any]], *, with_topic: bool) -> None:
    names = ["topic"] if with_topic else []
    columns: tuple[Column | str, ...] = (
        *names,
        "partition",
        Column("recovery_point", "recovery point"),
        Column("good_up_to", "intact up to"),
        Column("checked", show=len),
        Column("rebuilt", show=len),
    )
    output.print_table(columns, found)
    for each in found:
        if each["damage"] is None:
            continue
        topic = f"topic {each['topic']}, " if with_topic else ""
        key, why = each["damage"]["file"], each["damage"]["why"]
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
