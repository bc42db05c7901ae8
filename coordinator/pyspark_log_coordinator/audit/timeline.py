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
from pyspark_log_coordinator.cluster.groups import GroupCreated
from pyspark_log_coordinator.group import joining, lifecycle, offsets, rebalance
from pyspark_log_coordinator.group.sync import WorkAssigned
from pyspark_log_coordinator.journal.history import history
from pyspark_log_coordinator.journal.state_machine import JournalBegun, JournalEnded
from pyspark_log_coordinator.log.group_handle import GroupHandle
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.model.partition import named
from pyspark_log_coordinator.model.topic_state import changed_partitions
from pyspark_log_coordinator.replication.election import LeaderElected
from pyspark_log_coordinator.replication.file_holders import FilesHeld
from pyspark_log_coordinator.replication.isr_shrink import IsrShrunk
from pyspark_log_coordinator.replication.node_changes import ReplicasFenced, ReplicasRenewed, ReplicasUnfenced
from pyspark_log_coordinator.replication.reassignment import PartitionsAdded, ReplicasAltered
from pyspark_log_coordinator.replication.row_loss import RowsLost
from pyspark_log_coordinator.replication.suspicion import NodeSuspected, SuspicionCancelled
from pyspark_log_coordinator.segments.orphans import DeletionsConfirmed, FloorMarked, OrphanFloorRaised
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
    from pyspark_log_coordinator.model.topic_state import Topic

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


class Moment(msgspec.Struct, frozen=True):
    """Something that an entry did."""

    time_ms: int
    """When, by the clock of the process that wrote the entry."""
    scope: Scope
    name: str
    """The topic or the group; empty for the cluster."""
    entry: int
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


Said = tuple[Lane, str, bool]
Handle: TypeAlias = "TopicHandle | GroupHandle | Log"


def moments(handle: Handle, after: int = 0) -> Iterator[Moment]:
    """Yield what the entries of a topic, a group or the cluster did after entry `after`, oldest first.

    Raises `CorruptObject`, `StoreError`.
    """
    if isinstance(handle, Log):
        yield from _moments(handle.cluster, after, Scope.CLUSTER, "", _cluster_said)
    elif isinstance(handle, GroupHandle):
        yield from _moments(handle.journal, after, Scope.GROUP, handle.group_id, _group_said)
    else:
        yield from _moments(handle.journal, after, Scope.TOPIC, handle.name, _topic_said)


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


def _moments(
    journal: Journal[Any, Any],
    after: int,
    scope: Scope,
    name: str,
    said: Callable[[Any, Any, list[Any]], Iterable[Said | Moment]],
) -> Iterator[Moment]:
    is_known = after > 0 and journal.number == after
    before: Any = journal.state if is_known else None
    # Unless it is known, the state before the first entry is that of the entry before, which is read too.
    for step in history(journal, after if is_known else max(0, after - 1)):
        if step.number > after:
            for each in said(before, step.state, step.events):
                if isinstance(each, Moment):
                    yield msgspec.structs.replace(each, time_ms=step.time_ms, scope=scope, name=name, entry=step.number)
                else:
                    lane, words, is_bad = each
                    yield Moment(step.time_ms, scope, name, step.number, lane, words, is_bad)
        before = step.state


def _cluster_said(  # noqa: C901, PLR0912 -- a sentence for each event
    before: Cluster | None, after: Cluster, events: list[Any]
) -> Iterator[Said]:
    for event in events:
        match event:
            case cluster.ClusterStarted():
                yield Lane.SETTINGS, f"the cluster {event.cluster_id} began", False
            case JournalBegun():
                yield Lane.SETTINGS, f"the cluster's journal began anew, with the nodes {named(after.nodes)}", True
            case nodes.NodeAdded():
                yield Lane.NODES, f"node {event.node.node_id} joined, at {_at(event.node.url)}", False
            case nodes.NodeFenced():
                yield Lane.NODES, f"node {event.node_id} was fenced", True
            case nodes.NodeUnfenced():
                yield Lane.NODES, f"node {event.node_id} was returned to service", False
            case nodes.NodeRenewed():
                known = before.nodes.get(event.node_id) if before is not None else None
                is_moved = known is not None and known.incarnation == event.incarnation
                how = "moved with its data" if is_moved else "begins anew, without data,"
                yield Lane.NODES, f"node {event.node_id} {how} at {_at(event.url)}", not is_moved
            case nodes.RackSet():
                yield Lane.NODES, f"node {event.node_id} is in rack {event.rack or 'none'}", False
            case nodes.NodeRemoved():
                yield Lane.NODES, f"node {event.node_id} was removed", False
            case JournalEnded():
                to = named(each.node for each in event.nodes)
                yield Lane.NODES, f"the journals moved to the stores of nodes {to}", False
            case cluster.TopicCreated():
                count = len(event.topic.assignments)
                yield (
                    Lane.SETTINGS,
                    f"topic {event.topic.name!r} was created, with {_counted(count, 'partition')}",
                    False,
                )
            case cluster.TopicRemoved():
                yield Lane.SETTINGS, f"topic {event.name!r} was removed", False
            case cluster.DeletionsFinished():
                pass
            case GroupCreated():
                yield Lane.SETTINGS, f"group {event.group.group_id!r} was created", False
            case cluster.AddressSet():
                yield Lane.NODES, f"the cluster's root is at {event.url}", False
            case _:
                raise AssertionError(event)


def _topic_said(  # noqa: C901, PLR0912, PLR0915 -- a sentence for each event
    before: Topic | None, after: Topic, events: list[Any]
) -> Iterator[Said | Moment]:
    for event in events:
        match event:
            case BatchSequenced():
                yield _batch(before, after, event)
            case SegmentsSwapped():
                found = event.segment
                kind = "a Parquet segment" if found.is_parquet else "a segment"
                rows = f"{found.rows:,} rows from offset {found.base_offset:,}"
                yield Lane.SEGMENTS, f"partition {event.partition}: {rows} are {kind} now", False
            case LogStartMoved():
                start = before.partitions[event.partition].log_start if before is not None else event.log_start
                rows = f"{event.log_start - start:,} rows were deleted"
                yield Lane.SEGMENTS, f"partition {event.partition}: {rows}; it begins at {event.log_start:,}", False
            case RowsLost():
                rows = f"rows {event.start:,} to {event.end - 1:,} were lost"
                yield Lane.ELECTIONS, f"partition {event.partition}: {rows}", True
            case NodeSuspected():
                yield Lane.NODES, f"a process could not reach node {event.node}", True
            case SuspicionCancelled():
                yield Lane.NODES, f"node {event.node} was reached again", False
            case ReplicasRenewed():
                yield Lane.NODES, f"node {event.node} has none of the topic's rows: its store is new", True
            case topic.ConfigAltered():
                was, now = (before or after).config.words(), event.config.words()
                changed = [
                    f"{name}={now.get(name, 'none')} (was {was.get(name, 'none')})"
                    for name in sorted({*was, *now})
                    if now.get(name) != was.get(name)
                ]
                # What they were before the oldest entry that is left is not known.
                yield Lane.SETTINGS, f"settings changed: {', '.join(changed)}" if changed else "settings changed", False
            case SchemaEvolved():
                yield Lane.SETTINGS, f"the topic has new columns (schema {len(after.schemas) - 1})", False
            case topic.TopicStarted() | JournalBegun():
                how = "began" if isinstance(event, topic.TopicStarted) else "began anew"
                yield Lane.SETTINGS, f"the topic {how}, with {_counted(len(after.partitions), 'partition')}", False
            case topic.TopicDeleted():
                yield Lane.SETTINGS, "the topic was deleted", False
            case PartitionsAdded():
                yield Lane.SETTINGS, f"{_counted(len(event.assignments), 'partition')} more", False
            case JournalEnded():
                yield Lane.NODES, f"the topic's journal moved (generation {event.generation})", False
            case ReplicasAltered():
                if not event.adding and not event.removing:
                    nodes_now = ", ".join(event.replicas)
                    yield Lane.REASSIGNMENTS, f"partition {event.partition} is on nodes {nodes_now} now", False
                else:
                    words = [f"{verb} {named(some)}" for verb, some in _sides(event) if some]
                    yield Lane.REASSIGNMENTS, f"partition {event.partition} is being moved: {', '.join(words)}", False
            case LeaderElected() | IsrShrunk() | FilesHeld() | ReplicasFenced() | ReplicasUnfenced():
                pass  # the states before and after say what follows from it
            case OrphanFloorRaised() | FloorMarked() | DeletionsConfirmed():
                pass  # about files alone
            case _:
                raise AssertionError(event)
    if before is not None:
        yield from _followed(before, after)


def _sides(event: ReplicasAltered) -> tuple[tuple[str, tuple[NodeId, ...]], tuple[str, tuple[NodeId, ...]]]:
    return ("adding", event.adding), ("removing", event.removing)


def _batch(before: Topic | None, after: Topic, event: BatchSequenced) -> Moment:
    """Return a batch, with the offsets that its rows have in each partition."""
    places = []
    if before is not None:
        for number in changed_partitions(before.partitions, after.partitions):
            start = before.partitions[number].log_end if number < len(before.partitions) else 0
            end = after.partitions[number].log_end
            if start < end:
                places.append(f"partition {number} from {start:,} to {end - 1:,}")
    claim = event.claim
    who = f"batch {claim.batch_id} of {claim.producer!r}" if claim is not None and not claim.expires else "a batch"
    shown = ", ".join(places[:LISTED_MAX]) + (", …" if len(places) > LISTED_MAX else "")
    words = f"{who}: {_counted(event.rows, 'row')}" + (f" ({shown})" if shown else "")
    producer = claim.producer if claim is not None and not claim.expires else ""
    size = sum(chunk.length for file in event.files for chunk in file.chunks)
    return Moment(0, Scope.TOPIC, "", 0, Lane.BATCHES, words, rows=event.rows, bytes=size, producer=producer)


def _followed(before: Topic, after: Topic) -> Iterator[Said | Moment]:
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
            yield Lane.ELECTIONS, f"{_listed(numbers)} lost the leader, node {former}, and has none now", True
        else:
            instead = f" in place of node {former}" if former is not None else ""
            yield Lane.ELECTIONS, f"node {leader} leads {_listed(numbers)}{instead}", False
    for node, numbers in sorted(left.items()):
        yield _isr(f"node {node} left the ISR of {_listed(numbers)}", -len(numbers))
    for node, numbers in sorted(joined.items()):
        yield _isr(f"node {node} joined the ISR of {_listed(numbers)}", len(numbers))


def _isr(words: str, in_sync: int) -> Moment:
    return Moment(0, Scope.TOPIC, "", 0, Lane.ISR, words, is_bad=in_sync < 0, in_sync=in_sync)


def _group_said(  # noqa: C901, PLR0912 -- a sentence for each event
    before: Group | None, after: Group, events: list[Any]
) -> Iterator[Said | Moment]:
    for event in events:
        match event:
            case lifecycle.GroupStarted():
                yield Lane.SETTINGS, "the group began", False
            case lifecycle.GroupConfigAltered():
                yield Lane.SETTINGS, "the group's settings changed", False
            case lifecycle.GroupDeleted():
                yield Lane.SETTINGS, "the group was deleted", False
            case JournalBegun():
                yield Lane.SETTINGS, "the group began anew, without members", True
            case joining.MemberJoined():
                yield Lane.REBALANCES, f"{_member(event.member)} joined", False
            case joining.StaticMemberReplaced():
                yield Lane.REBALANCES, f"{_member(event.member)} took the place of its former process", False
            case rebalance.RebalanceStarted():
                yield Lane.REBALANCES, "a rebalance began", False
            case rebalance.MembersRemoved():
                some = _counted(len(event.member_ids), "member")
                words = f"{some} left: {', '.join(event.member_ids)}" if event.reason == "left" else ""
                words = words or f"{some} removed ({event.reason}): {', '.join(event.member_ids)}"
                yield Lane.REBALANCES, words, event.reason != "left"
            case rebalance.LeaderPassedOver():
                yield Lane.REBALANCES, f"{event.member_id} assigned nothing in time and was passed over", True
            case rebalance.GenerationStarted():
                some = _counted(len(after.members), "member")
                yield Lane.REBALANCES, f"generation {after.generation} began, with {some}", False
            case WorkAssigned():
                yield Lane.REBALANCES, f"the work of generation {after.generation} was assigned", False
            case offsets.OffsetsReset():
                count = sum(len(each) for each in event.offsets.values())
                yield Lane.OFFSETS, f"offsets of {_counted(count, 'partition')} were reset", True
            case offsets.OffsetsDeleted():
                count = sum(len(each) for each in event.partitions.values())
                yield Lane.OFFSETS, f"committed offsets of {_counted(count, 'partition')} were deleted", True
            case JournalEnded():
                yield Lane.NODES, f"the group's journal moved (generation {event.generation})", False
            case offsets.OffsetsCommitted():
                yield _commit(before, event)
            case rebalance.RebalanceExtended():
                pass  # the rebalance goes on
            case _:
                raise AssertionError(event)


def _commit(before: Group | None, event: offsets.OffsetsCommitted) -> Moment:
    """Return a commit. What was committed before the first known entry is not known."""
    rows = partitions = 0
    for topic_id, new in event.offsets.items():
        known = before.offsets.get(topic_id, {}) if before is not None else {}
        partitions += len(new)
        rows += sum(max(0, each.offset - known[number].offset) for number, each in new.items() if number in known)
    who = event.member_id or "somebody without a membership"
    words = f"{who} committed offsets of {_counted(partitions, 'partition')}, {_counted(rows, 'row')} further"
    return Moment(0, Scope.GROUP, "", 0, Lane.COMMITS, words, committed=rows)


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
