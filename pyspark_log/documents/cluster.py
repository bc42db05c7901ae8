"""The cluster, its nodes and its journal nodes: which of them answer now, and what a node has of each topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_log.documents.figures import figures_of
from pyspark_log_coordinator.model.partition import by_number
from pyspark_log_storage.errors import UnknownTopic
from pyspark_log_storage.stores import reserve

if TYPE_CHECKING:
    from pyspark_log_coordinator.cluster.nodes import Node
    from pyspark_log_coordinator.log.log import Log

FULL_BYTES = 2 * reserve.RESERVE_BYTES
"""A disk with less room than this is full: it has none for the reserve, from which rows can still be deleted."""
VOTES, DOES_NOT_VOTE = "votes", "does not vote"


def cluster(log: Log) -> dict[str, Any]:
    """Return a cluster. Reads the markers of its journal nodes."""
    state = log.cluster.state
    return {
        "cluster": state.cluster_id,
        "entry": log.cluster.number,
        "nodes": len(state.nodes),
        "topics": len(state.topics),
        "journal_nodes": journal_nodes(log),
    }


def journal_nodes(log: Log) -> list[dict[str, Any]]:
    """Return the nodes that have the journals, and why some do not vote now. Reads their markers."""
    if log.journals.nodes is None:
        (only,) = (each for each in log.nodes.values() if log.node_store(each.node_id) is log.store)
        return [{"node": only.node_id, "url": log.store.url, "incarnation": only.incarnation, "missing": None}]
    missing = {name: error.message for name, error in log.journals.missing_nodes().items()}
    return [
        {"node": each.node, "url": each.url, "incarnation": each.incarnation, "missing": missing.get(each.node)}
        for each in log.journals.nodes.nodes
    ]


def node(log: Log, member: Node) -> dict[str, Any]:
    """Return a node; whether it answers is as of the last probe. Asks its disk how much room it has."""
    missing, free = log.missing_nodes.get(member.node_id), free_bytes(log, member)
    is_full = free is not None and free < FULL_BYTES
    return {
        "node": member.node_id,
        "address": log.store_at(member.url).url,
        "rack": member.rack or None,
        "state": "fenced" if member.fenced else "missing" if missing is not None else "full" if is_full else "live",
        "incarnation": member.incarnation,
        "missing": None if missing is None else missing.message,
    }


def free_bytes(log: Log, member: Node) -> int | None:
    """Return how much room a node's disk has, None if that is not known or has no limit.

    Asks the disk, but not that of a node that is fenced or missing: it may hang.
    """
    if member.fenced or member.node_id in log.missing_nodes:
        return None
    return reserve.free_bytes(log.store_at(member.url))


def nodes(log: Log) -> list[dict[str, Any]]:
    """Return the nodes in the order of their ids. With several journal nodes they say whether they vote in them."""
    several = [] if log.journals.nodes is None else journal_nodes(log)
    votes = {each["node"]: VOTES if each["missing"] is None else DOES_NOT_VOTE for each in several}
    every = (node(log, log.nodes[name]) for name in sorted(log.nodes, key=by_number))
    return [each | {"journals": votes.get(each["node"]), "missing": each.pop("missing")} for each in every]


def topics_on(log: Log, node_id: str) -> list[dict[str, Any]]:
    """Return what a node has of each topic of which it has replicas. Reads the journals of all topics."""
    topics = []
    for name in sorted(log.topics()):
        try:
            has = figures_of(log.topic(name).state, log.broken_nodes).nodes.get(node_id)
        except UnknownTopic:
            continue  # deleted after the names were listed
        if has is not None:
            fields = ("replicas", "leads", "in_sync", "behind")
            topics.append({"topic": name} | {field: getattr(has, field) for field in fields})
    return topics
