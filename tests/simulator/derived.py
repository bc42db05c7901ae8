"""What processes derive from a topic's state without an entry, said once more from the design.

Where tasks write, which leaders should move back, which files are on one disk alone, and what a node that comes back
has to cut off its copy. `what_if` asks in the states that its walks reach.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from pyspark_log_coordinator.model.batch import Acks
from pyspark_log_coordinator.model.partition import Holder, SegmentRef
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication import election, file_holders, truncation, write_targets
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.segments.swap import SwapSegments
from pyspark_log_coordinator.topic import machine
from pyspark_log_coordinator.topic.machine import MaintainSegments
from pyspark_log_storage import layout
from tests.simulator.invariants import require
from tests.simulator.replica_rules import holders, is_quorum

Epochs = list[tuple[int, int]]
"""Leader epochs with their first offsets."""
_TRIES = 3
"""How many copies of a node are compared in each state."""


def hold(topic: Topic, chance: random.Random, now: int) -> None:
    """Hold all of it in one state, at `now` (ms)."""
    _hold_targets(topic, chance)
    _hold_balance(topic, chance)
    _hold_alone(topic)
    _hold_plan(topic, chance, now)
    for _ in range(_TRIES):
        _hold_divergence(chance)


def _hold_targets(topic: Topic, chance: random.Random) -> None:
    """Hold that tasks write to all members of the ISR that can be used, or to the leader, if there is one."""
    acks: Acks = chance.choice(["all", "1"])
    missing = [node for node in topic.incarnations if chance.random() < 0.3]
    targets = write_targets.write_targets(topic, acks, missing)
    for p, (partition, nodes) in enumerate(zip(topic.partitions, targets, strict=True)):
        wanted = partition.replicas if is_quorum(topic) else partition.isr
        able = {node for node in wanted if node not in missing and node not in topic.fenced}
        what = f"partition {p}: tasks write to {nodes} with acks={acks}, {able} of {wanted} can be used"
        require(nodes, what)
        if able and acks == "all":
            require(set(nodes) == able, what)
        elif able:
            require(len(nodes) == 1 and set(nodes) <= able, what)
            require(partition.leader not in able or nodes == (partition.leader,), what)
    enough = write_targets.enough(topic, acks)
    largest = max(len(each.replicas) for each in topic.partitions)
    due_enough = largest // 2 + 1 if is_quorum(topic) and acks == "all" else None
    require(enough == due_enough, f"a writer continues with {enough} of {largest} nodes")


def _hold_balance(topic: Topic, chance: random.Random) -> None:
    """Hold that leaders move back to a node if others lead more than a percentage of what prefers it."""
    percentage = chance.choice([0, 10, 50, 100])
    moving = election.imbalanced({"t": topic.partitions}, percentage).get("t", ())
    counted = {p: each for p, each in enumerate(topic.partitions) if each.leader and not (each.adding or each.removing)}
    due: list[int] = []
    for node in topic.incarnations:
        mine = [p for p, each in counted.items() if each.replicas[0] == node]
        away = [p for p in mine if counted[p].leader != node]
        due += away if len(away) * 100 > percentage * len(mine) else []
    require(sorted(due) == sorted(moving), f"{moving} should be led by others, not {due}, at {percentage} %")


def _hold_alone(topic: Topic) -> None:
    """Hold that of the files above the HW those are known that only the leader has."""
    for node in topic.incarnations:
        due = {
            f"append/{topic.file(chunk.file).name}"
            for each in topic.partitions
            if each.leader == node
            for chunk in each.chunks
            if chunk.end_offset > each.high_watermark and {one.node for one in holders(topic, chunk)} == {node}
        }
        found = set(file_holders.held_alone(topic, node))
        require(found == due, f"{node} alone has {due}, and {found} are said to be there alone")


def _hold_plan(topic: Topic, chance: random.Random, now: int) -> None:
    """Hold that a job is of neighbours, within its budget, and not refused in the state for which it was planned."""
    budget = chance.choice([1, 200, 1000, 10**6])
    for job in roll_plan.plan(topic, now, budget):
        partition, pieces = topic.partitions[job.partition], [*job.segments, *job.chunks]
        what = f"partition {job.partition}: a job of {pieces} with a budget of {budget}"
        require(partition.pieces_between(job.base_offset, job.end_offset) == pieces, f"{what}: something is left out")
        if job.compaction is not None or partition.staged:
            continue  # one that is staged may have expired in part, which leaves it out of the plan
        allowed = min(budget, topic.config.segment_bytes)
        require(len(pieces) == 1 or sum(each.length for each in pieces) <= allowed, what)
        name = layout.segment_name(job.base_offset, topic.orphan_floor, "0" * 32, parquet=job.parquet)
        everybody = tuple(Holder(*each) for each in topic.incarnations.items())
        times = pieces[0].min_timestamp, pieces[-1].max_timestamp, job.timestamp_reached
        segment = SegmentRef(name, everybody, job.base_offset, job.end_offset, 1, job.bytes, job.level, *times)
        answer = machine.decide(topic, MaintainSegments((SwapSegments(job.partition, job.leader_epoch, segment),)), now)
        require(answer, f"{what}: it is refused")


def _hold_divergence(chance: random.Random) -> None:
    """Hold that a copy is cut exactly where its rows are others than the log's.

    The copy has followed the log up to some point, and then leaders that the log does not know, or too long the old
    one. Two rows at one offset are the same if, and only if, they are of one leader epoch.
    """
    common = [0] * chance.randint(0, 4)
    for _ in range(chance.randint(0, 3)):
        common += [(common[-1] if common else 0) + chance.randint(0, 2)] * chance.randint(1, 3)
    local, lineage = list(common), list(common)
    last = common[-1] if common else 0
    chance.choice([local, lineage]).extend([last] * chance.choice([0, 0, 2]))
    mine, others = chance.choice([(1, 2), (2, 1), (1, 3)])
    for log, step in ((local, mine), (lineage, others)):
        epoch = last
        for _ in range(chance.randint(0, 2)):
            epoch += step if epoch == last else 2 * (chance.randint(1, 2))
            log.extend([epoch] * chance.randint(1, 3))
    shared = set(local[len(common) :]) & set(lineage[len(common) :]) - {last}
    if shared or (last in local[len(common) :] and last in lineage[len(common) :]):
        return  # both had the same leader after they had parted: that cannot be
    found = truncation.divergence(_epochs(local), len(local), _epochs(lineage), len(lineage))
    require(found == len(common), f"a copy {local} of {lineage} is cut at {found}")


def _epochs(log: Sequence[int]) -> Epochs:
    return [(epoch, at) for at, epoch in enumerate(log) if at == 0 or log[at - 1] != epoch]
