"""What becomes of a batch, said once more from the design: it is in the log already, taken, or refused.

A writer may be a former run, another query, or one that repeats; files may be too old, and offsets others than it
counts on. And enough replicas must have the batch: with acks=1 the leader, with acks=all the ISR, and enough of it.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.topic import machine
from pyspark_log_coordinator.topic.sequencing import BatchSequenced, CommitBatch
from pyspark_log_storage import layout
from tests.simulator.invariants import require
from tests.simulator.replica_rules import enough, is_quorum


class Outcome(Enum):
    """What becomes of a batch."""

    KNOWN = "in the log already"
    TAKEN = "taken"
    REFUSED = "refused"


def hold_answer(topic: Topic, command: CommitBatch, events: list[Any], after: Topic) -> None:
    """Hold that a batch was taken rightly, and what is known of its writer and of the ISR afterwards."""
    is_taken = any(isinstance(each, BatchSequenced) for each in events)
    due = outcome(topic, command)
    found = Outcome.TAKEN if is_taken else Outcome.KNOWN
    require(found is due, f"{command} is {found.value}, and should be {due.value}")
    if is_taken:
        _hold_members(topic, command, events)
        _hold_producer(topic, command, after)


def outcome(topic: Topic, command: CommitBatch) -> Outcome:
    """Return what should become of a batch that has rows."""
    if command.claim is not None:
        due = _of_claim(topic, command.claim, command.rows)
        if due is not Outcome.TAKEN:
            return due
    moved = [p for p, begin in (command.begins or {}).items() if topic.partitions[p].log_end != begin]
    stale = [each.name for each in command.files if layout.born_of(each.name) < topic.orphan_floor]
    numbers = {chunk.partition for file in command.files for chunk in file.chunks}
    if moved or stale or not all(_is_held(topic, command, p) for p in numbers):
        return Outcome.REFUSED
    return Outcome.TAKEN


def _of_claim(topic: Topic, claim: ProducerClaim, rows: int) -> Outcome:
    """Return what becomes of a batch of this writer: whoever was replaced is refused, and so is what goes back."""
    known = topic.producers.get(claim.producer)
    if known is None:
        return Outcome.TAKEN
    if claim.run_id in {*known.retired_runs} - {""} or claim.query_id in known.retired_queries:
        return Outcome.REFUSED
    if claim.query_id != known.query_id:
        return Outcome.TAKEN if claim.take_over else Outcome.REFUSED
    if claim.batch_id > known.batch_id:
        return Outcome.TAKEN
    is_same = claim.batch_id == known.batch_id and rows == known.rows and not known.rows_lost
    return Outcome.KNOWN if is_same else Outcome.REFUSED


def _is_held(topic: Topic, command: CommitBatch, p: int) -> bool:
    """Return whether enough replicas have all rows of a partition, the batch's too."""
    partition = topic.partitions[p]
    level = {node for node, end in partition.log_end_offsets.items() if end == partition.log_end}
    having = level - set(topic.fenced)
    for file in command.files:
        if any(chunk.partition == p for chunk in file.chunks):
            having &= {each.node for each in file.holders if topic.incarnations.get(each.node) == each.incarnation}
    if command.acks != "all":
        return partition.leader in having
    voting = having if is_quorum(topic) else having & set(partition.isr)
    return len(voting) >= enough(topic, partition)


def _hold_members(topic: Topic, command: CommitBatch, events: list[Any]) -> None:
    """Hold that after a batch with acks=all exactly those are in sync that have it."""
    after = topic
    for event in events:
        after = machine.evolve(after, event)
        if isinstance(event, BatchSequenced):
            break
    for p in {chunk.partition for file in command.files for chunk in file.chunks}:
        new = after.partitions[p]
        has_all = {node for node in new.replicas if new.log_end_offsets[node] == new.log_end} - set(topic.fenced)
        is_right = command.acks != "all" or has_all == set(new.isr)
        require(is_right, f"partition {p}: {has_all} have the batch, and {new.isr} are in sync")


def _hold_producer(topic: Topic, command: CommitBatch, after: Topic) -> None:
    """Hold that the batch is its producer's last one, and that the run and the query that it replaces are known."""
    claim = command.claim
    if claim is None:
        return
    known, new = topic.producers.get(claim.producer), after.producers[claim.producer]
    told = new.query_id, new.run_id, new.batch_id, new.rows, new.rows_lost
    require(told == (claim.query_id, claim.run_id, claim.batch_id, command.rows, 0), f"{claim} leads to {new}")
    if known is not None and not claim.expires:
        what = f"{claim} replaces {known.query_id}, {known.run_id}, and {new} is known"
        require(known.run_id in {"", claim.run_id, *new.retired_runs}, what)
        require(known.query_id in {claim.query_id, *new.retired_queries}, what)
