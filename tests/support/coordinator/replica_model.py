"""All that can happen to a partition on three nodes: the production machine, on disks that keep or lose what they hold.

    produce     a row with acks=1 or all, written to any of the nodes, and sequenced
    copy        a follower puts the next row that it lacks onto its disk; a row that is there it takes for the log's
    report      it says so: `HoldFiles`
    restart     a node crashes, with what it has copied and not reported; up again it cuts its disk as `divergence` says
    wipe        a node's disk is emptied; it is no longer the node that the journal knows
    renew       it joins again in a new incarnation
    elect       the leader is under suspicion for long enough, whether it is up or not; or nobody leads
    prefer      the preferred leader leads again
    shrink      somebody finds a member of the ISR lagging
    leave       somebody has suspected a member of the ISR for long enough, and it misses rows
    reach       somebody reaches a node that is suspected: a suspicion that was timed before counts no more
    rebuild     every journal is gone; the log is what the best folder of some nodes says

In any order. That a node is down needs no step of its own: it takes none, no row is written to it, and who elects may
find any nodes live and any others not. Each row is a chunk, a file and a batch of its own. Before a node is given a
row, its disk is cut to what belongs to the log. What must hold is checked in every state, and of every entry.

Bounds: rows, leader epochs, wipes, rebuilds. What the machine does to a state of the topic is done once and kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple
from unittest import mock

import msgspec

from pyspark_log_coordinator.model.append_list import AppendList
from pyspark_log_coordinator.model.partition import ChunkRef
from pyspark_log_coordinator.model.partitions import Partitions
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.replication import high_watermark
from pyspark_log_coordinator.replication.isr_shrink import Lagging
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.machine import (
    AlterReplicaNode,
    CancelSuspicion,
    CommitBatch,
    ElectLeaders,
    ElectPreferred,
    FileRef,
    Holder,
    HoldFiles,
    SequencedFile,
    ShrinkIsr,
    StartTopic,
    Suspect,
    Suspicion,
    Topic,
)
from pyspark_log_storage.errors import NotEnoughReplicas
from pyspark_log_storage.files.row_files import StagedChunk
from pyspark_log_storage.layout import born_name
from tests.support.coordinator.replica_disks import (
    NOTHING,
    Disk,
    Known,
    Node,
    State,
    by_epoch,
    by_high_watermark,
    words,
)
from tests.support.coordinator.replica_invariants import INVARIANTS, entry_violation
from tests.support.coordinator.topics import SCHEMAS


class Result(NamedTuple):
    """What a search came to."""

    states: int
    steps: int
    violation: str | None
    scenario: list[str]
    committed: int
    """How many states have a row below the HW: a search that commits nothing shows nothing."""
    elected: int
    """How many have had an election."""


Truncation = Callable[[Disk, Known, int], int]


class Flaws(NamedTuple):
    """What a wrong variant does otherwise."""

    truncation: Truncation = by_epoch
    any_isr_commits: bool = False
    """The HW moves however small the ISR is."""


class Model:
    """The states that can be reached from the first one."""

    def __init__(
        self,
        *,
        nodes: str = "ABC",
        rows: int,
        epochs: int,
        min_insync: int,
        wipes: int = 0,
        rebuilds: int = 0,
        flaws: Flaws | None = None,
        invariants: Sequence[str] = (),
    ) -> None:
        self.flaws = flaws or Flaws()
        self.names = nodes
        self.rows, self.epochs, self.wipes, self.rebuilds = rows, epochs, wipes, rebuilds
        self.min_insync = min_insync
        self.invariants = invariants or list(INVARIANTS)
        self._topics: list[Known] = []
        self._numbers: dict[bytes, int] = {}
        self._submitted: dict[object, int | None] = {}
        self.broken: str | None = None
        """What an entry did that none may do."""
        command = StartTopic(
            "t",
            "1",
            TopicConfig(min_insync_replicas=min_insync),
            SCHEMAS,
            {each: f"{each}0" for each in nodes},
            (tuple(nodes),),
        )
        self.first = State(self._fold(Topic(), command), (Node(),) * len(nodes))

    def search(self, states_max: int | None = None) -> Result:
        """Visit all states, the nearest first, up to the first one that breaks a rule."""
        with ExitStack() as stack:
            if self.flaws.any_isr_commits:
                stack.enter_context(mock.patch.object(high_watermark, "advance", _of_any_isr))
            return self._search(states_max)

    def _search(self, states_max: int | None) -> Result:
        came_from: dict[State, State | None] = {self.first: None}
        waiting, steps, committed, elected = deque([self.first]), 0, 0, 0
        while waiting and (states_max is None or len(came_from) < states_max):
            state = waiting.popleft()
            for _, after in self._events(state):
                steps += 1
                if after in came_from:
                    continue
                came_from[after] = state
                partition = self._topics[after.topic].partition
                committed += partition.high_watermark > 0
                elected += partition.leader_epoch > 0
                violation = self.broken or self._violation(after)
                if violation is not None:
                    return Result(len(came_from), steps, violation, self._story(after, came_from), committed, elected)
                waiting.append(after)
        return Result(len(came_from), steps, None, [], committed, elected)

    def _story(self, state: State, came_from: dict[State, State | None]) -> list[str]:
        lines: list[str] = []
        while (before := came_from[state]) is not None:
            words = next(words for words, after in self._events(before) if after == state)
            lines.append(f"{words:28}-> {self._words(state)}")
            state = before
        return lines[::-1]

    def _words(self, state: State) -> str:
        partition = self._topics[state.topic].partition
        disks = ", ".join(
            f"{name}{' (wiped)' if node.wiped else ''}: {words(node.disk.rows)}"
            for name, node in zip(self.names, state.nodes, strict=True)
        )
        return (
            f"leader {partition.leader} epoch {partition.leader_epoch} isr {','.join(partition.isr)} "
            f"hw {partition.high_watermark}; disks {disks}"
        )

    # What must hold

    def _violation(self, state: State) -> str | None:
        known = self._topics[state.topic]
        disks = {name: node.disk for name, node in zip(self.names, state.nodes, strict=True) if not node.wiped}
        for name in self.invariants:
            if (violation := INVARIANTS[name](state, known, disks, self.min_insync)) is not None:
                return violation
        return None

    # What can happen

    def _events(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield all that can happen next, and the state after it."""
        known = self._topics[state.topic]
        there = [i for i, node in enumerate(state.nodes) if not node.wiped]
        if state.produced < self.rows:
            yield from self._produce(state, known, there)
        for i, node in enumerate(state.nodes):
            name = self.names[i]
            if not node.wiped:
                yield from self._follow(state, known, i)
                cut = self.flaws.truncation(node.disk, known, node.high_watermark)
                yield f"restart {name}", _with(state, i, node._replace(disk=node.disk.cut(cut), copied=NOTHING))
            if node.wiped:
                after = self._submit(state.topic, AlterReplicaNode(name, f"{name}{node.incarnation + 1}"))
                renewed = _with(state, i, Node(incarnation=node.incarnation + 1))
                yield from self._to(f"renew {name}", renewed, after)
            if name in known.partition.isr and name != known.partition.leader:
                lagging = Lagging(0, (name,), known.partition.leader_epoch, known.partition.leader_end)
                yield from self._to(f"shrink {name}", state, self._submit(state.topic, ShrinkIsr((lagging,))))
        for name in known.state.suspects:
            reached = CancelSuspicion(name, known.state.incarnations[name], 1)
            yield from self._to(f"reach {name}", state, self._submit(state.topic, reached))
            gone = ShrinkIsr((), (Suspicion(name, 1),))
            yield from self._to(f"leave {name}", state, self._submit(state.topic, gone))
        yield from self._elect(state, known, there)
        if sum(node.incarnation + node.wiped for node in state.nodes) < self.wipes:
            for i in there:
                yield f"wipe {self.names[i]}", _with(state, i, Node(wiped=True, incarnation=state.nodes[i].incarnation))
        if state.rebuilds < self.rebuilds:
            for found in _subsets(there):
                yield from self._rebuild(state, known, found)

    def _produce(self, state: State, known: Known, there: list[int]) -> Iterator[tuple[str, State]]:
        row = state.produced
        for acks in ("1", "all"):
            for on in _subsets(there):
                holders = tuple(Holder(self.names[i], f"{self.names[i]}{state.nodes[i].incarnation}") for i in on)
                file = SequencedFile(born_name(0, str(row)), holders, (StagedChunk(0, 0, 64, 1, 0, 0, 0, 0),))
                number = self._submit(state.topic, CommitBatch(None, (file,), acks))  # type: ignore[arg-type]
                if number is None:
                    continue
                after, new = state, self._topics[number]
                for i in on:
                    disk = self._cut(state.nodes[i], known).put(len(new.log) - 1, new.log[-1])
                    node = state.nodes[i]._replace(disk=disk, high_watermark=self._told(known))
                    after = _with(after, i, node)
                after = after._replace(produced=row + 1, acked=after.acked | (acks == "all") << row)
                yield from self._to(f"produce {row} acks={acks} on {''.join(self.names[i] for i in on)}", after, number)

    def _follow(self, state: State, known: Known, i: int) -> Iterator[tuple[str, State]]:
        partition, node, name = known.partition, state.nodes[i], self.names[i]
        if node.copied != NOTHING:
            command = HoldFiles(name, f"{name}{node.incarnation}", (node.copied,))
            reported = node._replace(copied=NOTHING, high_watermark=self._told(known))
            number = self._submit(state.topic, command)
            yield from self._to(f"report {name}", _with(state, i, reported), state.topic if number is None else number)
            return
        offset = partition.log_end_offsets[name]
        if offset == partition.log_end:
            if name not in partition.isr:
                yield from self._to(
                    f"report {name}", state, self._submit(state.topic, HoldFiles(name, f"{name}{node.incarnation}"))
                )
            return
        disk, row, file = self._cut(node, known), known.log[offset], partition.chunks[offset].file
        if disk.get(offset) is None:
            said = {holder.node for holder in known.state.file(file).holders}
            having = [
                j
                for j, other in enumerate(state.nodes)
                if not other.wiped and self.names[j] in said and other.disk.get(offset) is not None
            ]
            if not having:
                return
            disk = disk.put(offset, row)
        yield f"copy {name} row {row[1]}", _with(state, i, node._replace(disk=disk, copied=file))

    def _elect(self, state: State, known: Known, there: list[int]) -> Iterator[tuple[str, State]]:
        leader = known.partition.leader
        everybody = [Holder(self.names[i], f"{self.names[i]}{state.nodes[i].incarnation}") for i in there]
        yield from self._to("prefer", state, self._submit(state.topic, ElectPreferred(tuple(everybody))))
        for chosen in ((), *_subsets(range(len(everybody)))):
            live = tuple(everybody[i] for i in chosen if everybody[i].node != leader)
            if len(live) < len(chosen):
                continue
            names = "".join(each.node for each in live) or "nobody"
            if leader is None:
                yield from self._to(f"elect, live is {names}", state, self._submit(state.topic, ElectLeaders(live)))
                continue
            dead = tuple(name for name in self.names if name != leader and name not in names)
            for gone in {(leader,): 1, (leader, *dead): 2}:
                number = state.topic
                for name in gone:
                    suspected = self._submit(number, Suspect(name, self._topics[number].state.incarnations[name]))
                    number = number if suspected is None else suspected
                command = ElectLeaders(live, tuple(Suspicion(name, 1) for name in gone))
                words = f"elect, live is {names}, gone {''.join(sorted(gone))}"
                yield from self._to(words, state, self._submit(number, command))

    def _rebuild(self, state: State, known: Known, found: list[int]) -> Iterator[tuple[str, State]]:
        """Yield the log as the best folder has it, where no folder that is away knows of a committed row more."""
        best = max(
            found, key=lambda i: (max(dict(state.nodes[i].disk.epochs), default=-1), len(state.nodes[i].disk.rows))
        )
        disk = state.nodes[best].disk
        committed = known.log[: known.partition.high_watermark]
        if None in disk.rows or disk.rows[: len(committed)] != committed or known.partition.leader_epoch >= self.epochs:
            return
        leader, end = self.names[best], len(disk.rows)
        holders = (Holder(leader, known.state.incarnations[leader]),)
        rows = [row for row in disk.rows if row is not None]
        epoch = known.partition.leader_epoch + 1
        partition = msgspec.structs.replace(
            known.partition,
            isr=(leader,),
            leader=leader,
            leader_epoch=epoch,
            epoch_starts=(*((e, start) for e, start in disk.epochs if start < end), (epoch, end)),
            log_end=end,
            high_watermark=0,
            log_end_offsets={name: end if name == leader else 0 for name in self.names},
            chunks=AppendList([ChunkRef(at, 1, at, 0, 64, 0, 0, 0, row[0], 0, 0) for at, row in enumerate(rows)]),
        )
        rebuilt = msgspec.structs.replace(
            known.state,
            partitions=Partitions((partition,)),
            files=AppendList([FileRef(born_name(0, str(number)), holders, 0) for _, number in rows]),
            suspects={},
        )
        nodes = tuple(node._replace(copied=NOTHING) for node in state.nodes)
        after = state._replace(nodes=nodes, rebuilds=state.rebuilds + 1)
        names = "".join(self.names[i] for i in found)
        yield from self._to(f"rebuild from {names}", after, self._intern(rebuilt))

    def _cut(self, node: Node, known: Known) -> Disk:
        """Return a disk before it is given a row: a node that is up knows the journal."""
        if self.flaws.truncation is by_high_watermark:
            return node.disk
        return node.disk.cut(self.flaws.truncation(node.disk, known, 0))

    def _told(self, known: Known) -> int:
        """Return the HW that a node is told: that of the round before."""
        return known.partition.high_watermark if self.flaws.truncation is by_high_watermark else 0

    def _to(self, words: str, state: State, number: int | None) -> Iterator[tuple[str, State]]:
        """Yield the state with the journal as it is after an entry, if there is one within the bounds."""
        if number is not None and self._topics[number].partition.leader_epoch <= self.epochs:
            yield words, state._replace(topic=number)

    # The machine

    def _submit(self, number: int, command: topic.Command) -> int | None:
        """Return the number of the topic's state after a command; None where it is refused or changes nothing."""
        key = number, msgspec.msgpack.encode(command), type(command)
        if key not in self._submitted:
            before = self._topics[number]
            try:
                after = self._fold(before.state, command)
            except NotEnoughReplicas:
                after = number
            self._submitted[key] = None if after == number else after
            self.broken = self.broken or entry_violation(before, self._topics[after])
        return self._submitted[key]

    def _fold(self, state: Topic, command: topic.Command) -> int:
        events = topic.decide(state, command, 0)
        restored = topic.MACHINE.decode_state(topic.MACHINE.encode_state(state))
        for event in events:
            state, restored = topic.evolve(state, event), topic.evolve(restored, event)
        if restored != state:
            self.broken = f"replay from a snapshot gives another state after {events}"
        return self._intern(state)

    def _intern(self, state: Topic) -> int:
        """Return the state's number. How suspicions are numbered, and holders ordered, makes no difference."""
        files = [msgspec.structs.replace(each, holders=tuple(sorted(each.holders, key=_name))) for each in state.files]
        state = msgspec.structs.replace(
            state, files=AppendList(files), suspects=dict.fromkeys(sorted(state.suspects), 1), suspicions=0
        )
        data = topic.MACHINE.encode_state(state)
        if data not in self._numbers:
            self._numbers[data] = len(self._topics)
            (partition,) = state.partitions
            log = tuple(
                (chunk.leader_epoch, int(state.file(chunk.file).name.removeprefix(born_name(0, ""))))
                for chunk in partition.chunks
            )
            self._topics.append(Known(state, partition, log))
        return self._numbers[data]


def _of_any_isr(log_end_offsets, isr, current, replicas, min_insync):
    return max(current, min((log_end_offsets[node] for node in isr), default=current))


def _subsets(every: Sequence[int]) -> list[list[int]]:
    """Return the choices of at least one."""
    return [[each for n, each in enumerate(every) if chosen >> n & 1] for chosen in range(1, 1 << len(every))]


def _with(state: State, i: int, node: Node) -> State:
    return state._replace(nodes=(*state.nodes[:i], node, *state.nodes[i + 1 :]))


def _name(holder: Holder) -> str:
    return holder.node
