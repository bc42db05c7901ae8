"""What a topic's journal did to one partition, in the words of Replication.tla.

The events of an entry become actions. The specification computes by itself what follows from an action, such as the
ISR after a batch, so the events that say so are left out here: they are in the state that it is compared with. Rows'
bytes, times and producers are left out, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pyspark_log_coordinator.journal.history import Step
from pyspark_log_coordinator.journal.state_machine import JournalEnded
from pyspark_log_coordinator.model.partition import ChunkRef, Partition, SegmentRef
from pyspark_log_coordinator.model.topic_state import Topic
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
from pyspark_log_coordinator.topic.columns import SchemaEvolved
from pyspark_log_coordinator.topic.machine import ConfigAltered, TopicDeleted
from pyspark_log_coordinator.topic.sequencing import BatchSequenced

NONE = "no node"
Action = dict[str, Any]
_OF_NO_PARTITION = OrphanFloorRaised | FloorMarked | DeletionsConfirmed | SchemaEvolved | JournalEnded | PartitionsAdded
_OF_A_PARTITION = IsrShrunk | LeaderElected | ReplicasAltered | SegmentsSwapped | LogStartMoved


def traces(steps: Iterable[Step]) -> list[dict[str, Any]]:
    """Return a trace for each partition of a topic: its state after the first step, and what later entries do to it."""
    found: list[dict[str, Any]] = []
    files = 0
    for step in steps:
        if any(isinstance(each, TopicDeleted) for each in step.events):
            break
        for p, trace in enumerate(found):
            actions, seen = _actions(p, step.events, files), _seen(step.state, step.state.partitions[p])
            if actions or seen != trace["seen"]:
                trace["entries"].append({"number": step.number, "actions": actions, "seen": seen})
                trace["seen"] = seen
        files = step.state.next_file
        new = step.state.partitions[len(found) :]
        found += [{"begin": _state(step.state, each), "seen": _seen(step.state, each), "entries": []} for each in new]
    return [{"begin": each["begin"], "entries": each["entries"]} for each in found]


def _state(topic: Topic, partition: Partition) -> dict[str, Any]:
    chunks = [
        {"id": f"file {each.file}", **_place(each), "holders": _nodes(topic.file(each.file).holders)}
        for each in partition.chunks
    ]
    return {
        "order": partition.replicas,
        "adding": frozenset(partition.adding),
        "removing": frozenset(partition.removing),
        "fenced": frozenset(topic.fenced),
        "suspects": frozenset(topic.suspects),
        "isr": frozenset(partition.isr),
        "leader": partition.leader or NONE,
        "epoch": partition.leader_epoch,
        "from": partition.epoch_start,
        "start": partition.log_start,
        "hw": partition.high_watermark,
        "end": partition.log_end,
        "pieces": [*map(_segment, partition.segments), *chunks],
        **_config(topic),
    }


def _config(state: Any) -> dict[str, Any]:
    config = state.config
    return {"min": config.min_insync_replicas, "quorum": config.replication_mode == "quorum"}


def _seen(state: Topic, partition: Partition) -> dict[str, Any]:
    return {
        "leader": partition.leader or NONE,
        "epoch": partition.leader_epoch,
        "isr": frozenset(partition.isr),
        "start": partition.log_start,
        "hw": partition.high_watermark,
        "end": partition.log_end,
        "leos": frozenset(partition.log_end_offsets.items()),
        "suspects": frozenset(state.suspects),
        "fenced": frozenset(state.fenced),
    }


def _actions(p: int, events: Sequence[Any], files: int) -> list[Action]:
    """Return what an entry does to partition `p`, in order. Its append files are numbered from `files`."""
    actions: list[Action] = []
    lost = 0  # rows that the next election cuts
    for event in events:
        match event:
            case BatchSequenced():
                batch = _batch(p, event, files)
                while batch["kind"] == "append" and actions and actions[-1]["kind"] in {"shrink", "elect"}:
                    actions.pop()  # it follows from the batch
                actions.append(batch)
                files += len(event.files)
            case FilesHeld():
                actions.append({"kind": "hold", "node": event.node, "ids": _ids(p, event.files, event.segments)})
            case RowsLost():
                lost = event.end - event.start if event.partition == p else lost
            case LeaderElected() if event.partition == p:
                actions.append(_election(event, lost))
                lost = 0
            case _:
                actions += _other_actions(p, event)
    return actions


def _other_actions(p: int, event: Any) -> list[Action]:
    """Return the action of an event that depends on no other one, if it is of partition `p`."""
    match event:
        case NodeSuspected() | SuspicionCancelled() | ReplicasRenewed() | ReplicasFenced() | ReplicasUnfenced():
            return [{"kind": _OF_A_NODE[type(event)], "node": event.node}]
        case ConfigAltered():
            return [{"kind": "config", **_config(event)}]
    if isinstance(event, _OF_NO_PARTITION):
        return []
    if event.partition != p:
        assert isinstance(event, _OF_A_PARTITION), f"the specification knows no {type(event).__name__}"
        return []
    match event:
        case IsrShrunk():
            return [{"kind": "shrink", "isr": frozenset(event.isr)}]
        case ReplicasAltered():
            nodes = {"adding": frozenset(event.adding), "removing": frozenset(event.removing)}
            return [{"kind": "alter", "order": event.replicas, **nodes}]
        case SegmentsSwapped():
            return [{"kind": "swap", "segment": _segment(event.segment)}]
        case LogStartMoved():
            return [{"kind": "start", "start": event.log_start}]
    raise AssertionError(f"the specification knows no {type(event).__name__}")


_OF_A_NODE = {
    NodeSuspected: "suspect",
    SuspicionCancelled: "cancel",
    ReplicasRenewed: "renew",
    ReplicasFenced: "fence",
    ReplicasUnfenced: "unfence",
}


def _batch(p: int, event: BatchSequenced, files: int) -> Action:
    rows = [
        {"id": f"file {number}", "rows": chunk.rows, "holders": _nodes(file.holders)}
        for number, file in enumerate(event.files, files)
        for chunk in file.chunks
        if chunk.partition == p
    ]
    nodes = frozenset(holder.node for file in event.files for holder in file.holders)
    if rows:
        return {"kind": "append", "acks": event.acks, "rows": rows, "nodes": nodes}
    return {"kind": "seen", "nodes": nodes}


def _election(event: LeaderElected, lost: int) -> Action:
    told = {"leader": event.leader or NONE, "epoch": event.leader_epoch, "start": event.start}
    return {"kind": "elect", **told, "lost": lost, "isr": frozenset(event.isr)}


def _segment(segment: SegmentRef) -> dict[str, Any]:
    return {"id": segment.name, **_place(segment), "holders": _nodes(segment.holders)}


def _place(piece: SegmentRef | ChunkRef) -> dict[str, int]:
    return {"base": piece.base_offset, "end": piece.end_offset}


def _ids(p: int, files: Iterable[int], segments: Iterable[tuple[int, str]]) -> frozenset[str]:
    return frozenset([*(f"file {each}" for each in files), *(name for of, name in segments if of == p)])


def _nodes(holders: Iterable[Any]) -> frozenset[str]:
    return frozenset(each.node for each in holders)
