"""What if: commands that somebody might send to a topic at this moment, late, mistaken or right.

A world has few elections, and fewer of each rare kind. But what a topic would answer costs no operation on a store:
`decide` is a function. So after each entry a walk begins at the state that the world has reached: a command, its
events, the next one. Nothing of it happens. Every answer is held against the rules (`answers`, `replica_rules`): what
the journal promises may be called in at any moment. The walks of a world are a function of its seed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from pyspark_log_coordinator.model.batch import Acks, SequencedFile
from pyspark_log_coordinator.model.partition import Holder, NodeId, Partition, SegmentRef
from pyspark_log_coordinator.model.producers import RETIRED_MAX, Producer, ProducerClaim
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication.damage import ReportDamage
from pyspark_log_coordinator.replication.damaged_copies import SetBack
from pyspark_log_coordinator.replication.election import ElectLeaders, ElectPreferred, LeaderElected
from pyspark_log_coordinator.replication.file_holders import HoldFiles
from pyspark_log_coordinator.replication.isr_shrink import Lagging, ShrinkIsr
from pyspark_log_coordinator.replication.node_changes import AlterReplicaNode
from pyspark_log_coordinator.replication.reassignment import AddPartitions, AlterReplicas, PartitionReassignment
from pyspark_log_coordinator.replication.suspicion import CancelSuspicion, Suspect, Suspicion
from pyspark_log_coordinator.segments.first_offsets import SetFirstOffsets
from pyspark_log_coordinator.segments.orphans import ConfirmDeletions, RaiseOrphanFloor
from pyspark_log_coordinator.segments.retention import ApplyRetention, DeleteRecords
from pyspark_log_coordinator.segments.swap import SwapSegments
from pyspark_log_coordinator.topic import machine
from pyspark_log_coordinator.topic.machine import MaintainSegments
from pyspark_log_coordinator.topic.sequencing import CommitBatch
from pyspark_log_storage import layout
from pyspark_log_storage.errors import LogError
from pyspark_log_storage.files.row_files import StagedChunk
from tests.simulator import answers, derived, replica_rules
from tests.simulator.watch import Watch

STEPS = 12
"""How many commands a walk has."""
_MISTAKEN = 0.1
"""How often a command says what was so before: of a node that was wiped since, of a suspicion that was cancelled."""
_FOLLOWED = 0.3
"""How often a question is one that the one before made interesting."""
_LOOKS = 0.6
"""How often a failure detector looks at what was answered."""
_PARTITIONS_MAX = 5
_PRODUCER = "producer"
"""One that has many former runs."""
_ANOTHER = "another"
"""A node that the topic may not know yet."""


class WhatIf:
    """The walks of one world."""

    def __init__(self, seed: int, counts: Counter[str]) -> None:
        self._seed = seed
        self._counts = counts

    def walk(self, topic: Topic, number: int, now: int) -> None:
        """Ask one question after another, beginning at the state after entry `number`, at `now` (ms)."""
        if topic.deleted or not topic.started:
            return
        chance = random.Random(f"what if {self._seed} had {number}")
        topic = _configured(topic, chance)
        watch, question = Watch(chance), chance.choice(_QUESTIONS)
        for step in range(STEPS):
            command = question(_Asking(topic, chance, number + step, f"{number}x{step}"))
            topic = self._answered(topic, command, number + step, now + chance.choice([0, 0, 10**6]))
            if chance.random() < _LOOKS:
                watch.look(topic)
            follows = _FOLLOW.get(question, ()) if chance.random() < _FOLLOWED else ()
            question = chance.choice(follows or _QUESTIONS)
        derived.hold(topic, chance, now)

    def _answered(self, topic: Topic, command: Any, number: int, now: int) -> Topic:
        name = type(command).__name__
        try:
            events = machine.decide(topic, command, now)
        except LogError as error:
            self._counts[f"what if {type(error).__name__}"] += 1
            answers.hold_refusal(topic, command, error)
            return topic
        after = replica_rules.followed(topic, events)
        machine.MACHINE.check_entry(topic, events, after, max(number, after.orphan_floor))
        replica_rules.hold_state(after)
        answers.hold(topic, command, events, after, now)
        self._counts[f"what if {name}"] += bool(events)
        self._counts["what if a segment is staged"] += any(each.staged for each in after.partitions)
        elected = [each for each in events if isinstance(each, LeaderElected)]
        for each in elected:
            is_clean = each.leader is None or each.leader in topic.partitions[each.partition].isr
            self._counts["what if an election is clean" if is_clean else "what if an election is unclean"] += 1
        return after


def _configured(topic: Topic, chance: random.Random) -> Topic:
    """Return the topic with what promises more or less: a walk may be that of another topic's configuration."""
    config = topic.config
    if chance.random() < 0.5:
        config = msgspec.structs.replace(config, min_insync_replicas=chance.randint(1, 4))
    if chance.random() < 0.5 and all(map(_is_settled, topic.partitions)):
        config = msgspec.structs.replace(config, replication_mode=chance.choice(["isr", "quorum"]))
    config = msgspec.structs.replace(config, unclean_leader_election_enable=chance.random() < 0.3)
    retired = tuple(f"run {number}" for number in range(RETIRED_MAX))
    producers = {**topic.producers, _PRODUCER: Producer("query", "last run", 0, 1, retired)}
    return msgspec.structs.replace(topic, config=config, producers=producers)


def _is_settled(partition: Partition) -> bool:
    """Return whether the rows below the HW are where either mode wants them."""
    having = [node for node, end in partition.log_end_offsets.items() if end >= partition.high_watermark]
    is_moving = partition.adding or partition.removing
    return not is_moving and set(having) >= set(partition.isr) and len(having) > len(partition.replicas) // 2


class _Asking:
    """What a command may name, at random."""

    def __init__(self, topic: Topic, chance: random.Random, number: int, name: str) -> None:
        self.topic = topic
        self.chance = chance
        self.number = number
        self.name = name

    def is_so(self) -> bool:
        """Return whether this command is not mistaken."""
        return self.chance.random() >= _MISTAKEN

    def some(self, values: Sequence[Any], share: float = 0.5) -> list[Any]:
        return [each for each in values if self.chance.random() < share]

    def node(self) -> NodeId:
        return self.chance.choice([*self.topic.incarnations, _ANOTHER]) if not self.is_so() else self.member()

    def member(self) -> NodeId:
        return self.chance.choice([*self.topic.incarnations])

    def incarnation(self, node: NodeId) -> str:
        return self.topic.incarnations.get(node, "unknown") if self.is_so() else "former"

    def holders(self, share: float) -> tuple[Holder, ...]:
        return tuple(Holder(node, self.incarnation(node)) for node in self.some([*self.topic.incarnations], share))

    def partitions(self) -> tuple[int, ...] | None:
        chosen = tuple(self.some(range(len(self.topic.partitions))))
        return chosen or None

    def suspicions(self) -> tuple[Suspicion, ...]:
        known = [Suspicion(node, number) for node, number in self.topic.suspects.items()]
        others = [Suspicion(node, self.topic.suspicions) for node in self.topic.incarnations]
        return tuple(self.some(known, 0.8) + self.some(others, _MISTAKEN))

    def files(self, share: float = 0.5) -> list[int]:
        return self.some(range(self.topic.first_file, self.topic.next_file), share)

    def segments(self, share: float = 0.5) -> list[tuple[int, Any]]:
        every = [(p, each) for p, partition in enumerate(self.topic.partitions) for each in partition.all_segments]
        return self.some(every, share)


def _elect_leaders(asking: _Asking) -> ElectLeaders:
    unclean = asking.chance.random() < 0.2
    return ElectLeaders(asking.holders(0.6), asking.suspicions(), asking.partitions(), unclean, _set_back(asking, 0.3))


def _elect_what_is_left(asking: _Asking) -> ElectLeaders:
    """Return an election in which hardly anybody is live, and the disks of most others were set back."""
    suspects = tuple(Suspicion(node, number) for node, number in asking.topic.suspects.items())
    return ElectLeaders(asking.holders(0.1), suspects, None, True, _set_back(asking, 0.8))


def _set_back(asking: _Asking, share: float) -> tuple[SetBack, ...]:
    return tuple(
        SetBack(
            each.node,
            each.incarnation,
            tuple(asking.files(0.3)),
            tuple((p, one.name) for p, one in asking.segments(0.3)),
        )
        for each in asking.holders(share)
    )


def _elect_preferred(asking: _Asking) -> ElectPreferred:
    return ElectPreferred(asking.holders(0.7), asking.partitions())


def _shrink(asking: _Asking) -> ShrinkIsr:
    lagging = [
        Lagging(
            p,
            tuple(asking.some(each.replicas)),
            each.leader_epoch - (not asking.is_so()),
            max(each.leader_end - asking.chance.choice([0, 0, 1, 5]), 0),
        )
        for p, each in enumerate(asking.topic.partitions)
    ]
    return ShrinkIsr(tuple(asking.some(lagging, 0.7)), asking.suspicions())


def _suspect(asking: _Asking) -> Suspect:
    node = asking.node()
    return Suspect(node, asking.incarnation(node))


def _cancel(asking: _Asking) -> CancelSuspicion:
    node = asking.chance.choice([*asking.topic.suspects] or [asking.node()])
    number = asking.topic.suspects.get(node, asking.topic.suspicions)
    return CancelSuspicion(node, asking.incarnation(node), number - (not asking.is_so()))


def _alter_node(asking: _Asking) -> AlterReplicaNode:
    node = asking.node()
    known = asking.topic.incarnations.get(node, "")
    is_wiped = asking.chance.random() < 0.2
    return AlterReplicaNode(node, f"new {asking.name}" if is_wiped else known, asking.chance.random() < 0.4)


def _hold_files(asking: _Asking) -> HoldFiles:
    node, share = asking.node(), asking.chance.choice([0.3, 1.0])
    segments = tuple((p, each.name) for p, each in asking.segments(share))
    return HoldFiles(node, asking.incarnation(node), tuple(asking.files(share)), segments)


def _report(asking: _Asking) -> ReportDamage:
    node = asking.node()
    begins = sorted({(chunk.file, chunk.position) for each in asking.topic.partitions for chunk in each.chunks})
    segments = tuple(
        (p, each.name, asking.chance.choice([0, each.log_bytes - 1, each.log_bytes]))
        for p, each in asking.segments(0.2)
    )
    files, are_lost = tuple(asking.some(begins, 0.2)), asking.chance.random() < 0.5
    return ReportDamage(node, asking.incarnation(node), files, segments, are_lost)


def _reassign(asking: _Asking) -> AlterReplicas:
    topic, chance = asking.topic, asking.chance
    known = {**topic.incarnations, _ANOTHER: topic.incarnations.get(_ANOTHER, "first")}
    p = chance.randrange(len(topic.partitions))
    nodes = chance.sample(sorted(known), min(len(known), chance.randint(1, 3)))
    return AlterReplicas((PartitionReassignment(p, tuple(nodes)),), known)


def _apply_retention(_: _Asking) -> ApplyRetention:
    return ApplyRetention()


def _delete_records(asking: _Asking) -> DeleteRecords:
    p = asking.chance.randrange(len(asking.topic.partitions))
    mark = asking.topic.partitions[p].high_watermark
    return DeleteRecords(p, asking.chance.choice([-1, mark, mark + 1, asking.chance.randint(0, mark)]))


def _confirm(asking: _Asking) -> ConfirmDeletions:
    keys = [each.key for each in asking.topic.pending_deletions]
    return ConfirmDeletions(asking.chance.choice(keys or ["append/0-none"]))


def _raise_floor(asking: _Asking) -> RaiseOrphanFloor:
    return RaiseOrphanFloor(asking.number)


def _claim(asking: _Asking) -> ProducerClaim | None:
    """Return the claim of a producer: by a run or query of before, of now, or a new one, and perhaps once more."""
    chance = asking.chance
    kind = chance.random()
    if kind < 0.4:
        return None
    if kind < 0.5:
        return ProducerClaim(f"process {asking.name}", "", "", 0, expires=True)
    known = asking.topic.producers[_PRODUCER]
    run = chance.choice([known.run_id, known.run_id, f"run {asking.name}", chance.choice(known.retired_runs or ("",))])
    others = ["other query", chance.choice(known.retired_queries or ("other query",))]
    query = known.query_id if asking.is_so() else chance.choice(others)
    batch = known.batch_id + (1 if asking.is_so() else chance.choice([0, 0, 0, -1]))
    return ProducerClaim(_PRODUCER, query, run, batch, take_over=chance.random() < 0.3)


def _commit(asking: _Asking) -> CommitBatch:
    topic, chance = asking.topic, asking.chance
    acks: Acks = chance.choice(["all", "all", "1"])
    claim = _claim(asking)
    known = topic.producers[_PRODUCER]
    is_again = claim is not None and claim.producer == _PRODUCER and claim.batch_id == known.batch_id
    files = []
    for number in range(1 if is_again else chance.randint(1, 2)):
        some = asking.some(range(len(topic.partitions))) or [0]
        chunks = tuple(
            StagedChunk(p, at * 64, 64, known.rows if is_again else chance.randint(1, 4), 0, 0, 0, 0)
            for at, p in enumerate(some[:1] if is_again else some)
        )
        born = max(topic.orphan_floor - (not asking.is_so()), 0)
        name = layout.born_name(born, f"{asking.name}x{number}")
        files.append(SequencedFile(name, asking.holders(0.8), chunks))
    p = chance.randrange(len(topic.partitions))
    begins = {p: topic.partitions[p].log_end - (not asking.is_so())} if chance.random() < 0.2 else None
    return CommitBatch(claim, tuple(files), acks, _swaps(asking) if chance.random() < 0.3 else (), begins)


def _swaps(asking: _Asking) -> tuple[SwapSegments, ...]:
    """Return a segment in the place of neighbours, mistaken now and then: made of others, or known to a few."""
    topic, chance = asking.topic, asking.chance
    p = chance.randrange(len(topic.partitions))
    partition = topic.partitions[p]
    pieces = partition.pieces_between(partition.log_start, partition.log_end)
    if not pieces:
        return ()
    first = chance.choice([0, len(partition.segments) - 1, chance.randrange(len(pieces))])
    some = pieces[max(first, 0) :][: chance.randint(1, 4)]
    begin, end = some[0].base_offset, some[-1].end_offset + (not asking.is_so())
    name = layout.segment_name(
        begin, max(topic.orphan_floor - (not asking.is_so()), 1), f"{chance.getrandbits(128):032x}"
    )
    times = (
        min(each.min_timestamp for each in some),
        max(each.max_timestamp for each in some),
        some[-1].timestamp_reached,
    )
    holders = asking.holders(chance.choice([0.3, 0.9, 1.0]))
    level = max(each.level if isinstance(each, SegmentRef) else 0 for each in some) + asking.is_so()
    segment = SegmentRef(name, holders, begin, end, len(some), sum(each.length for each in some), level, *times)
    return (SwapSegments(p, partition.leader_epoch - (not asking.is_so()), segment),)


def _maintain(asking: _Asking) -> MaintainSegments:
    return MaintainSegments(_swaps(asking))


def _add_partitions(asking: _Asking) -> AddPartitions:
    topic = asking.topic
    known, count = dict(topic.incarnations), len(topic.partitions)
    nodes = asking.chance.sample(sorted(known), asking.chance.randint(1, len(known)))
    return AddPartitions((tuple(nodes),), known, count if asking.is_so() and count < _PARTITIONS_MAX else count - 1)


def _set_first_offsets(asking: _Asking) -> SetFirstOffsets:
    newest = len(asking.topic.partitions) - 1
    p = newest if asking.is_so() else asking.chance.randint(0, newest)
    return SetFirstOffsets({p: asking.chance.choice([0, 7, asking.topic.partitions[p].log_end])})


_QUESTIONS: Sequence[Callable[[_Asking], Any]] = (
    _elect_leaders,
    _elect_leaders,
    _elect_preferred,
    _shrink,
    _suspect,
    _suspect,
    _cancel,
    _alter_node,
    _alter_node,
    _hold_files,
    _hold_files,
    _report,
    _report,
    _reassign,
    *(_commit,) * 3,
    *(_maintain,) * 2,
    _apply_retention,
    _delete_records,
    _confirm,
    _raise_floor,
    _add_partitions,
)
_FOLLOW: dict[Callable[[_Asking], Any], Sequence[Callable[[_Asking], Any]]] = {
    _alter_node: (_elect_leaders, _elect_what_is_left, _alter_node, _commit),
    _suspect: (_elect_leaders, _elect_what_is_left, _shrink, _cancel),
    _cancel: (_suspect,),
    _add_partitions: (_set_first_offsets, _commit),
    _set_first_offsets: (_set_first_offsets, _commit),
    _elect_leaders: (_elect_what_is_left, _commit),
    _elect_what_is_left: (_elect_what_is_left, _commit),
    _maintain: (_alter_node, _suspect, _hold_files, _report),
}
