"""`pyspark-log recover`: check the files of one node, after an unclean shutdown or without journals."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from pyspark_log.cli import arguments
from pyspark_log.cli.command import Result, command
from pyspark_log.opening import open_log
from pyspark_log_coordinator.audit import node_recovery
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_storage.errors import InvalidOption, NoCluster, UnknownTopic
from pyspark_log_storage.layout import TOPICS
from pyspark_log_storage.names import check_topic, is_topic
from pyspark_log_storage.objects.node import read_marker, require_marker
from pyspark_log_storage.stores.addresses import absolute_urls, open_store

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_storage.stores.store import Store


@command(
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
) -> Result:
    """Check the files of one node and rebuild lost indexes.

    Use it after an unclean shutdown, or if the journals are lost. Checks the files with rows after the recovery points
    that the topic's journal names, or the description in the folder, and shows up to which offset the rows are good.
    The exit code is 1 if a file is damaged.

    If --node is an id, the files are also compared with the journals: segments with rows that were truncated while the
    node was unreachable are deleted. Otherwise the node's folder is enough, and no journal is read.

    Afterwards replace damaged files with pyspark-log verify --node NODE --repair, and let the node catch up with
    pyspark-log node run NODE; or, if all journals are lost, use pyspark-log cluster rebuild.
    """
    for topic in topics or ():
        check_topic(topic)
    log = None
    if node is None or "/" in node:
        store = _store_at(path if node is None else node)
    else:
        log = open_log(path)
        incarnation, store = log.node(node).incarnation, log.node_store(node)
        require_marker(store, node, incarnation)
    found: list[dict[str, Any]] = []
    for topic in topics or filter(is_topic, store.folders(TOPICS)):
        done = [*node_recovery.recover(store, topic, real_environment(), log, everything=everything, dry_run=dry_run)]
        if not done and topics:
            message = f"topic {topic!r} has no description at {store.url}; check its name and the address"
            raise UnknownTopic(topic, message)
        found += msgspec.to_builtins(done)
    strays = [] if log is None or node is None else _strays(log, node, topics, dry_run=dry_run)
    counts = [each | {name: len(each[name]) for name in ("checked", "rebuilt")} for each in found]
    damaged = [f"{each['damage']['file']}: {each['damage']['why']}" for each in found if each["damage"] is not None]
    return Result([*found, *strays], damaged, [*counts, *strays], "nothing to check: no topics")


def _store_at(address: str) -> Store:
    """Return the store at the address of a node."""
    url, *others = absolute_urls(address)
    if others:
        raise InvalidOption("node", "the address has several stores; select a node with --node")
    store = open_store(url)
    if read_marker(store) is None and not any(True for _ in store.folders(TOPICS)):
        raise NoCluster(f"no node at {url}: it has neither a node marker nor topics; check the address")
    return store


def _strays(log: Log, node: str, wanted: list[str] | None, *, dry_run: bool) -> list[dict[str, Any]]:
    """Return the segments of truncated rows in the node's folder, and delete them unless it is a dry run."""
    found = []
    for name in sorted(log.topics()):
        if wanted is not None and name not in wanted:
            continue
        with contextlib.suppress(UnknownTopic):  # its deletion was interrupted, or came meanwhile
            handle = log.topic(name)
            here = node_recovery.strays(handle, node)
            if not dry_run:
                node_recovery.remove_strays(handle, node, here)
            found += here
    return [msgspec.to_builtins(each) for each in found]
