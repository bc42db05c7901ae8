"""The timeline: what the journals' entries did, in words, and when.

An event says what was decided, and the states before and after it say what followed: which node joined an ISR with the
files that it has copied, or whom a leader replaced. Times are those of the entries: of the clock of the process that
wrote each. What was trimmed is gone, so the timeline of a journal begins where its history begins.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from pyspark_log_coordinator.audit import stored_objects
from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster import nodes
from pyspark_log_coordinator.group import joining, offsets, rebalance
from pyspark_log_coordinator.group import machine as group
from pyspark_log_coordinator.journal.history import history
from pyspark_log_coordinator.journal.state_machine import JournalBegun, JournalEnded
from pyspark_log_coordinator.log.group_handle import GroupHandle
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.model.partition import named
from pyspark_log_coordinator.model.topic_state import Topic, changed_partitions
from pyspark_log_coordinator.replication.node_changes import ReplicasRenewed
from pyspark_log_coordinator.replication.reassignment import PartitionsAdded, ReplicasAltered
from pyspark_log_coordinator.replication.row_loss import RowsLost
from pyspark_log_coordinator.replication.suspicion import NodeSuspected, SuspicionCancelled
from pyspark_log_coordinator.segments.retention import LogStartMoved
from pyspark_log_coordinator.segments.swap import SegmentsSwapped
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.columns import SchemaEvolved
from pyspark_log_coordinator.topic.sequencing import BatchSequenced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark_log_coordinator.cluster.cluster_state import Cluster
    from pyspark_log_coordinator.group.state import Group
    from pyspark_log_coordinator.journal.journal import Journal
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import NodeId

LISTED_MAX = 8
"""So many partitions are listed in a sentence; of more it says how many."""


class Lane(enum.Enum):
    """What an event is about: a lane of the timeline."""

    NODES = "nodes"
    ELECTIONS = "elections"
    ISR = "ISR changes"
    REASSIGNMENTS = "reassignments"
    REBALANCES = "rebalances"
    OFFSETS = "offset resets"
    SEGMENTS = "rolls and retention"
    BATCHES = "batches"
    COMMITS = "commits of offsets"
    SETTINGS = "topics and settings"


class Scope(enum.Enum):
    """Whose journal an entry is in."""

    CLUSTER = "cluster"
    TOPIC = "topic"
    GROUP = "group"


class Said(msgspec.Struct, frozen=True):
    """What an event did."""

    lane: Lane
    words: str
    is_bad: bool = False
    """Whether somebody should look: rows were lost, a partition has no leader, a node left an ISR."""
    rows: int = 0
    """The rows of a batch."""
    bytes: int = 0
    """The bytes of a batch, as one node stores them."""
    producer: str = ""
    """The query or application that wrote a batch; empty for a process without a name that lasts."""
    committed: int = 0
    """The rows by which a commit moved a group on."""
    in_sync: int = 0
    """By how many replicas the ISRs together have grown, or shrunk if it is negative."""


class Moment(Said, frozen=True, kw_only=True):
    """Something that an entry did."""

    time_ms: int
    """When, by the clock of the process that wrote the entry."""
    scope: Scope
    name: str
    """The topic or the group; empty for the cluster."""
    entry: int


Handle: TypeAlias = "TopicHandle | GroupHandle | Log"


def moments(handle: Handle, after: int = 0, until: int | None = None) -> Iterator[Moment]:
    """Yield what the entries of a topic, a group or the cluster did after entry `after`, oldest first.

    Ends with entry `until`, which `handle` knows already, or with the newest that there is.
    Raises `CorruptObject`, `StoreError`.
    """
    journal = _journal_of(handle)
    if isinstance(handle, Log):
        scope, name = Scope.CLUSTER, ""
    elif isinstance(handle, GroupHandle):
        scope, name = Scope.GROUP, handle.group_id
    else:
        scope, name = Scope.TOPIC, handle.name
    before: Any = journal.state if after > 0 and journal.number == after else None
    for step in history(journal, after, until, with_base=True):
        if step.number > after and not step.is_snapshot:
            for each in said(before, step.state, step.events):
                did = msgspec.structs.asdict(each)
                yield Moment(**did, time_ms=step.time_ms, scope=scope, name=name, entry=step.number)
        before = step.state


def entry_of(handle: Handle, number: int) -> tuple[int, list[dict[str, Any]]] | None:
    """Return time (ms) and events of an entry, each by its fields; None if it was trimmed, or does not exist.

    Bytes are given by how many they are. Raises `CorruptObject`, `StoreError`.
    """
    step = next(history(_journal_of(handle), number - 1), None)
    if step is None or step.number != number:
        return None
    return step.time_ms, [{"event": type(event).__name__, **stored_objects.plain(event)} for event in step.events]


def _journal_of(handle: Handle) -> Journal[Any, Any]:
    return handle.cluster if isinstance(handle, Log) else handle.journal


def said(before: Any, after: Any, events: list[Any]) -> Iterator[Said]:
    """Yield what the events of an entry did, which led from one state to the other."""
    for event in events:
        words = WORDS.get(event.__class__)
        if isinstance(words, Said):
            yield msgspec.structs.replace(words, words=words.words.format(event=event, after=after))
        elif words is not None:
            yield words(before, after, event)
    if before is not None and isinstance(after, Topic):
        yield from _followed(before, after)


def _node(before: Cluster | None, _after: Cluster, event: nodes.NodeChanged) -> Said:
    node, who = event.node, f"node {event.node.node_id}"
    known = before.nodes.get(node.node_id) if before is not None else None
    if known is None:
        return Said(Lane.NODES, f"{who} joined, at {_at(node.url)}")
    if known.incarnation != node.incarnation:
        return Said(Lane.NODES, f"{who} begins anew, without data, at {_at(node.url)}", is_bad=True)
    if known.url != node.url:
        return Said(Lane.NODES, f"{who} moved with its data at {_at(node.url)}")
    if known.rack != node.rack:
        return Said(Lane.NODES, f"{who} is in rack {node.rack!r}")
    return Said(Lane.NODES, f"{who} was {'fenced' if node.fenced else 'returned to service'}", is_bad=node.fenced)


def _swapped(_before: Topic | None, _after: Topic, event: SegmentsSwapped) -> Said:
    found = event.segment
    kind = "a Parquet segment" if found.is_parquet else "a segment"
    rows = f"{found.rows:,} rows from offset {found.base_offset:,}"
    return Said(Lane.SEGMENTS, f"partition {event.partition}: {rows} are {kind} now")


def _start_moved(before: Topic | None, _after: Topic, event: LogStartMoved) -> Said:
    start = before.partitions[event.partition].log_start if before is not None else event.log_start
    rows = f"{event.log_start - start:,} rows were deleted"
    return Said(Lane.SEGMENTS, f"partition {event.partition}: {rows}; it begins at {event.log_start:,}")


def _altered(before: Topic | None, after: Topic, event: topic.ConfigAltered) -> Said:
    was, now = (before or after).config.words(), event.config.words()
    changed = [
        f"{name}={now.get(name, 'none')} (was {was.get(name, 'none')})"
        for name in sorted({*was, *now})
        if now.get(name) != was.get(name)
    ]
    # What they were before the oldest entry that is left is not known.
    return Said(Lane.SETTINGS, f"settings changed: {', '.join(changed)}" if changed else "settings changed")


def _reassigned(_before: Topic | None, _after: Topic, event: ReplicasAltered) -> Said:
    sides = (("adding", event.adding), ("removing", event.removing))
    moving = [f"{verb} {named(some)}" for verb, some in sides if some]
    how = f"is being moved: {', '.join(moving)}" if moving else f"is on nodes {', '.join(event.replicas)} now"
    return Said(Lane.REASSIGNMENTS, f"partition {event.partition} {how}")


def _removed(_before: Group | None, _after: Group, event: rebalance.MembersRemoved) -> Said:
    some, who = _counted(len(event.member_ids), "member"), ", ".join(event.member_ids)
    has_left = event.reason == "left"
    return Said(Lane.REBALANCES, f"{some} {'left' if has_left else f'removed ({event.reason})'}: {who}", not has_left)


def _batch(before: Topic | None, after: Topic, event: BatchSequenced) -> Said:
    """Return a batch, with the offsets that its rows have in each partition."""
    places = []
    if before is not None:
        for number in changed_partitions(before.partitions, after.partitions):
            start = before.partitions[number].log_end if number < len(before.partitions) else 0
            end = after.partitions[number].log_end
            if start < end:
                places.append(f"partition {number} from {start:,} to {end - 1:,}")
    claim = event.claim
    producer = (claim.query_name or claim.producer) if claim is not None and not claim.expires else ""
    who = f"batch {claim.batch_id} of {producer!r}" if claim is not None and producer else "a batch"
    shown = ", ".join(places[:LISTED_MAX]) + (", …" if len(places) > LISTED_MAX else "")
    words = f"{who}: {_counted(event.rows, 'row')}" + (f" ({shown})" if shown else "")
    size = sum(chunk.length for file in event.files for chunk in file.chunks)
    return Said(Lane.BATCHES, words, rows=event.rows, bytes=size, producer=producer)


def _followed(before: Topic, after: Topic) -> Iterator[Said]:
    """Yield how leaders and ISRs differ between two states, many partitions in one sentence."""
    led: dict[tuple[NodeId | None, NodeId | None], list[int]] = defaultdict(list)
    left: dict[NodeId, list[int]] = defaultdict(list)
    joined: dict[NodeId, list[int]] = defaultdict(list)
    for number in changed_partitions(before.partitions, after.partitions):
        if number >= len(before.partitions):
            continue
        old, new = before.partitions[number], after.partitions[number]
        if old.leader != new.leader:
            led[old.leader, new.leader].append(number)
        for node in set(old.isr) - set(new.isr):
            left[node].append(number)
        for node in set(new.isr) - set(old.isr):
            joined[node].append(number)
    for (former, leader), numbers in led.items():
        if leader is None:
            words = f"{_listed(numbers)} lost the leader, node {former}, and has none now"
            yield Said(Lane.ELECTIONS, words, is_bad=True)
        else:
            instead = f" in place of node {former}" if former is not None else ""
            yield Said(Lane.ELECTIONS, f"node {leader} leads {_listed(numbers)}{instead}")
    for node, numbers in sorted(left.items()):
        yield Said(Lane.ISR, f"node {node} left the ISR of {_listed(numbers)}", is_bad=True, in_sync=-len(numbers))
    for node, numbers in sorted(joined.items()):
        yield Said(Lane.ISR, f"node {node} joined the ISR of {_listed(numbers)}", in_sync=len(numbers))


def _commit(before: Group | None, _after: Group, event: offsets.OffsetsCommitted) -> Said:
    """Return a commit. Where a group began in a partition is not known, nor what it had committed before `before`."""
    rows = partitions = first = 0
    for topic_id, new in event.offsets.items():
        known = before.offsets.get(topic_id, {}) if before is not None else {}
        partitions += len(new)
        rows += sum(max(0, each.offset - known[number].offset) for number, each in new.items() if number in known)
        first += len(new.keys() - known)
    who = event.member_id or "somebody without a membership"
    words = f"{who} committed offsets of {_counted(partitions, 'partition')}, {_counted(rows, 'row')} further"
    if first and before is not None:
        words += f"; in {_counted(first, 'partition')} for the first time, which counts no rows"
    return Said(Lane.COMMITS, words, committed=rows)


def _member(details: Any) -> str:
    at = f" on {details.host}" if details.host else ""
    return f"member {details.instance_id or details.member_id}{at}"


def _at(url: str) -> str:
    return "the root" if url == nodes.AT_THE_ROOT else url


def _listed(numbers: Iterable[int] | Mapping[int, Any]) -> str:
    """Return partitions by their numbers, or how many there are."""
    some = sorted(numbers)
    if len(some) == 1:
        return f"partition {some[0]}"
    shown = ", ".join(map(str, some[:LISTED_MAX]))
    return f"partitions {shown}" + (f" and {len(some) - LISTED_MAX:,} more" if len(some) > LISTED_MAX else "")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


WORDS: dict[type, Said | Callable[[Any, Any, Any], Said]] = {
    JournalBegun: Said(Lane.SETTINGS, "the journal began anew", is_bad=True),
    JournalEnded: Said(Lane.NODES, "the journal moved (generation {event.generation})"),
    # The cluster
    cluster.ClusterStarted: Said(Lane.SETTINGS, "the cluster {event.cluster_id} began"),
    cluster.TopicCreated: lambda _before, _after, event: Said(
        Lane.SETTINGS,
        f"topic {event.topic.name!r} was created, with {_counted(len(event.topic.assignments), 'partition')}",
    ),
    cluster.TopicRemoved: Said(Lane.SETTINGS, "topic {event.name!r} was removed"),
    cluster.AddressSet: Said(Lane.NODES, "the cluster's root is at {event.url}"),
    cluster.GroupCreated: Said(Lane.SETTINGS, "group {event.group.group_id!r} was created"),
    nodes.NodeChanged: _node,
    nodes.NodeRemoved: Said(Lane.NODES, "node {event.node_id} was removed"),
    # Topics
    ReplicasRenewed: Said(Lane.NODES, "node {event.node} has none of the topic's rows: its store is new", is_bad=True),
    NodeSuspected: Said(Lane.NODES, "a process could not reach node {event.node}", is_bad=True),
    SuspicionCancelled: Said(Lane.NODES, "node {event.node} was reached again"),
    RowsLost: lambda _before, _after, event: Said(
        Lane.ELECTIONS,
        f"partition {event.partition}: rows {event.start:,} to {event.end - 1:,} were lost",
        is_bad=True,
    ),
    ReplicasAltered: _reassigned,
    BatchSequenced: _batch,
    SegmentsSwapped: _swapped,
    LogStartMoved: _start_moved,
    topic.TopicStarted: lambda _before, after, _event: Said(
        Lane.SETTINGS, f"the topic began, with {_counted(len(after.partitions), 'partition')}"
    ),
    topic.TopicDeleted: Said(Lane.SETTINGS, "the topic was deleted"),
    topic.ConfigAltered: _altered,
    SchemaEvolved: lambda _before, after, _event: Said(
        Lane.SETTINGS, f"the topic has new columns (schema {len(after.schemas) - 1})"
    ),
    PartitionsAdded: lambda _before, _after, event: Said(
        Lane.SETTINGS, f"{_counted(len(event.assignments), 'partition')} more"
    ),
    # Groups
    group.GroupStarted: Said(Lane.SETTINGS, "the group began"),
    group.GroupConfigAltered: Said(Lane.SETTINGS, "the group's settings changed"),
    group.GroupDeleted: Said(Lane.SETTINGS, "the group was deleted"),
    joining.MemberJoined: lambda _before, _after, event: Said(Lane.REBALANCES, f"{_member(event.member)} joined"),
    joining.StaticMemberReplaced: lambda _before, _after, event: Said(
        Lane.REBALANCES, f"{_member(event.member)} took the place of its former process"
    ),
    rebalance.RebalanceStarted: Said(Lane.REBALANCES, "a rebalance began"),
    rebalance.MembersRemoved: _removed,
    rebalance.LeaderPassedOver: Said(
        Lane.REBALANCES, "{event.member_id} assigned nothing in time and was passed over", is_bad=True
    ),
    rebalance.GenerationStarted: lambda _before, after, _event: Said(
        Lane.REBALANCES, f"generation {after.generation} began, with {_counted(len(after.members), 'member')}"
    ),
    rebalance.WorkAssigned: Said(Lane.REBALANCES, "the work of generation {after.generation} was assigned"),
    offsets.OffsetsCommitted: _commit,
    offsets.OffsetsReset: lambda _before, _after, event: Said(
        Lane.OFFSETS,
        f"offsets of {_counted(sum(map(len, event.offsets.values())), 'partition')} were reset",
        is_bad=True,
    ),
    offsets.OffsetsDeleted: lambda _before, _after, event: Said(
        Lane.OFFSETS,
        f"committed offsets of {_counted(sum(map(len, event.partitions.values())), 'partition')} were deleted",
        is_bad=True,
    ),
}
"""What each kind of event did: words with its fields, or a function of the states before and after it.

Of other events nothing is said: they are about files alone, or change leaders and ISRs (`_followed`).
"""
