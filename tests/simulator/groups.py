"""Groups: those of the stream readers, an operator who rewinds them, and what must hold of their journals.

A stream reader with a group commits to it what its checkpoint says, and takes up what the operator sets. The journal of
its group is compared with its checkpoint at every entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_log.reading import groups as operations
from pyspark_log.reading import source_offset
from pyspark_log_coordinator.assignors.subscription import decode_assignment
from pyspark_log_coordinator.group import machine as group
from pyspark_log_coordinator.group.machine import AlterGroupConfig, DeleteGroup, GroupDeleted
from pyspark_log_coordinator.group.offsets import (
    Offset,
    OffsetDelete,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsReset,
    ResetOffsets,
)
from pyspark_log_coordinator.group.state import Group, GroupState
from pyspark_log_coordinator.maintenance import cluster_cleanup
from pyspark_log_storage.errors import GroupNotEmpty, LogError, UnknownGroup, UnknownTopic
from tests.simulator.invariants import History, require

if TYPE_CHECKING:
    from pyspark_log.reading.source_offset import SourceOffset
    from pyspark_log_coordinator.log.group_handle import GroupHandle
    from tests.simulator.store import Objects
    from tests.simulator.world import Process, World

TOPIC = "t"
SHARED = "shared"
"""The group whose members share the topic."""
Checkpoint = dict[str, Any]
"""A stream's: `start`, `end` of the batch that is planned, and all `starts` that there were."""
NONE = -1
"""The number before that of the first rewind, and of offsets that were committed without one."""
_EMPTY = {GroupState.EMPTY, GroupState.DEAD}
_WAITING = {GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE}
_GROWING = ("generation", "rewinds", "actions", "barriers", "journal_generation")


class GroupHistory(History):
    """A group's journal, entry by entry."""

    def __init__(self, folder: str, objects: Objects, world: World) -> None:
        super().__init__(folder, group.MACHINE, objects)
        self._world = world

    def decided(self, events: list[Any], before: Group, after: Group) -> None:
        for name in _GROWING:
            require(getattr(before, name) <= getattr(after, name), f"{name} of group {after.group_id} went back")
        state = before
        for event in events:
            self._world.counts["rewound"] += isinstance(event, OffsetsReset)
            self._world.counts["offsets deleted"] += isinstance(event, OffsetsDeleted | GroupDeleted)
            if isinstance(event, OffsetsCommitted) and event.member_id:
                self._committed_by_member(event, state)
            elif isinstance(event, OffsetsCommitted):
                self._committed(event, state)
            self._world.counts[f"{type(event).__name__} of {SHARED}"] += after.group_id == SHARED
            state = group.evolve(state, event)
        self._hold_state(after)

    def _hold_state(self, after: Group) -> None:
        """Hold what is true of a group between two entries."""
        what = f"group {after.group_id} in {after.state.value}, generation {after.generation}"
        members = after.members.values()
        require((after.state in _EMPTY) == (not members), f"{what}, has the members {list(after.members)}")
        require((after.state in _WAITING) == (after.barrier is not None), f"{what}, waits for {after.barrier}")
        instances = [each.details.instance_id for each in members if each.details.instance_id]
        require(len(instances) == len(set(instances)), f"{what}: two members are {instances}")
        if after.state in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}:
            require(after.leader in after.members, f"{what}: its leader {after.leader!r} is no member")
            supported = [{one.name for one in each.details.protocols} for each in members]
            require(all(after.protocol in each for each in supported), f"{what}: {after.protocol!r} of {supported}")
        if after.state is GroupState.STABLE:
            given = [p for share in _shares(after).values() for p in share]
            require(len(given) == len(set(given)), f"generation {after.generation} gives a partition to two members")

    def _committed(self, event: OffsetsCommitted, before: Group) -> None:
        """Hold that a commit is of what its query has read, after every rewind, and goes back only with a rewind."""
        where = f"group {before.group_id}"
        self._world.counts["offset commits"] += 1
        ((topic_id, offsets),) = event.offsets.items()
        new = {p: each.offset for p, each in offsets.items()}
        starts = map(source_offset.parse, reversed(self._world.checkpoints[before.group_id]["starts"]))
        taken = next((_taken(each) for each in starts if not each.initial and _ends(each) == new), None)
        require(taken is not None, f"{where}: {new} is committed, and the query's checkpoint has never had it")
        assert taken is not None
        for p, offset in new.items():
            known = before.committed(topic_id, p)
            if known is None:
                continue
            what = f"{where}, partition {p}: {offset} is committed over {known.offset}"
            require(known.rewind <= taken, f"{what} of rewind {known.rewind}, which the query has not taken up")
            require(offset >= known.offset or self._is_unclean, f"{what}: it went back, and was not rewound")

    def _committed_by_member(self, event: OffsetsCommitted, before: Group) -> None:
        """Hold that no other member owns what is committed, and that nobody else has committed the same rows.

        What a member commits says where its rows begin, and in which process it read them.
        """
        ((topic_id, offsets),) = event.offsets.items()
        shares = _shares(before)
        for p, new in offsets.items():
            others = [name for name, share in shares.items() if p in share and name != event.member_id]
            where = f"partition {p}: {event.member_id} commits {new.offset} in generation {before.generation}"
            require(not others, f"{where}, and {others} own it")
            base, _, process = new.metadata.partition(" ")
            known = before.committed(topic_id, p)
            offset, last = (0, "") if known is None else (known.offset, known.metadata.partition(" ")[2])
            # A process whose answer was lost does not know that it has committed.
            follows = int(base) == offset or (process == last and int(base) <= offset <= new.offset)
            require(follows, f"{where}, for rows from {base} on, and {last or 'a rewind'} has set {offset}")

    @property
    def _is_unclean(self) -> bool:
        return self._world.rows is None or self._world.rows.unclean

    def hold_taken_up(self, since: int, begun: SourceOffset, ended: SourceOffset) -> None:
        """Hold that a batch, planned after entry `since`, begins where the rewinds that it takes up set it.

        Every partition that none of them moved begins where the batch before ended. As the number of the rewinds that
        are taken up never goes back, each rewind is taken up once.
        """
        if self._is_unclean:
            return
        assert self._world.rows is not None
        before, after = NONE if begun.initial else _taken(begun), _taken(ended)
        require(before <= after, f"rewind {after} is taken up after rewind {before}")
        begins = {p: at.offset for (_, p), at in ended.begins(begun).items()}
        ends = {} if begun.initial else _ends(begun)
        lows = [each.log_start for each in self._world.rows.states[-1].partitions]
        topic_id = ended.topics[TOPIC].topic_id

        def follows(moved: dict[int, int]) -> bool:
            return all(
                at == moved[p] or moved[p] < at <= lows[p] if p in moved else at >= ends.get(p, at)
                for p, at in begins.items()
            )

        states = [each for each in self.states[since:] if each.rewinds == after] if after > before else []
        moves = [
            {p: at.offset for p, at in each.offsets.get(topic_id, {}).items() if at.rewind > before} for each in states
        ]
        what = f"a batch begins at {begins} after {ends}, and takes up the rewinds {before} to {after}"
        require(any(map(follows, moves or [{}])), f"{what}, which set {moves}")
        self._world.counts["rewinds taken up"] += max(after, 0) - max(before, 0)

    def hold_finished(self, checkpoint: Checkpoint) -> None:
        """Hold that a query that has read everything has taken up all rewinds, and has committed where it is."""
        start, state = source_offset.parse(checkpoint["start"]), self.states[-1]
        offsets = state.offsets.get(start.topics[TOPIC].topic_id, {})
        left = {p: at for p, at in offsets.items() if at.rewind > _taken(start)}
        require(not left, f"the rewinds {left} were not taken up by {start}")
        known = {p: at.offset for p, at in offsets.items()}
        require(known == _ends(start), f"{known} is committed, and the query is at {_ends(start)}")


def starts_at_committed(name: str) -> bool:
    """Return whether the query of a group starts at its committed offsets, instead of at the first rows."""
    return name.endswith("1")


def group_of(world: World, name: str) -> GroupHistory | None:
    """Return the journal of a group, or None if it has not begun."""
    return next((each for each in world.groups.values() if each.states[-1].group_id == name), None)


def group_operator(process: Process) -> None:
    """Rewind the groups of the stream readers, and now and then delete offsets, or a whole group.

    A query that starts at the first rows, whatever was committed before, is not rewound before it has started.
    """
    world, chance = process.world, process.chance
    while world.busy:
        process.wait(0.1)
        name = chance.choice(sorted(world.checkpoints))
        if len(world.checkpoints[name].get("starts", ())) < 2 and not starts_at_committed(name):
            continue
        try:
            process.open(create=True)
            partitions = process.log.topic(TOPIC).journal.state.partitions
            chosen = chance.sample(range(len(partitions)), chance.randint(1, len(partitions)))
            match chance.randrange(8):
                case 0:
                    handle = process.log.group(name)
                    handle.submit(OffsetDelete({process.log.topic(TOPIC).topic_id: tuple(chosen)}))
                case 1:
                    process.log.group(name).submit(DeleteGroup())
                case 2:
                    cluster_cleanup.clean_up_groups(process.log, lambda _, error: world.excused(error))
                case _:
                    ranges = {p: (partitions[p].log_start, partitions[p].high_watermark) for p in chosen}
                    new = {(TOPIC, p): chance.randint(*bounds) for p, bounds in ranges.items()}
                    operations.reset(process.log, name, new)
        except (UnknownGroup, UnknownTopic):
            pass
        except LogError as error:
            world.excused(error)


class Times(NamedTuple):
    """The time-outs of members, in ms."""

    heartbeat_ms: int = 40
    session_ms: int = 200
    poll_ms: int = 600


def times_of(world: World) -> Times:
    """Return the time-outs of a world's members: on several journal nodes everything takes longer."""
    return Times(*(4 * each for each in Times())) if world.settings.nodes.journals > 1 else Times()


def accept_short_sessions(group: GroupHandle) -> None:
    """Let a group accept short time-outs."""
    short = {"group.min.session.timeout.ms": str(Times().session_ms), "group.initial.rebalance.delay.ms": "20"}
    group.submit(AlterGroupConfig(short))


def rewinder(process: Process) -> None:
    """Rewind some partitions of the group that shares the topic, now and then; that is refused if it has members."""
    world, chance = process.world, process.chance
    while world.busy:
        process.wait(0.3)
        if world.rows is None or not world.rows.number or group_of(world, SHARED) is None:
            continue
        ends = [each.high_watermark for each in world.rows.states[-1].partitions]
        numbers = chance.sample(range(len(ends)), chance.randint(1, len(ends)))
        new = {p: Offset(chance.choice([ends[p], chance.randint(0, ends[p])])) for p in numbers}
        try:
            process.open(create=True)
            command = ResetOffsets({world.rows.topic_id: new})
            process.log.group(SHARED).submit(command)
        except GroupNotEmpty:
            world.counts["rewinds refused"] += 1
        except LogError as error:
            world.excused(error)


def _shares(state: Group) -> dict[str, list[int]]:
    """Return the partitions of each member."""
    found = {name: decode_assignment(each.assignment, name).partitions for name, each in state.members.items()}
    return {name: [p for numbers in share.values() for p in numbers] for name, share in found.items()}


def _taken(offset: SourceOffset) -> int:
    assert offset.group is not None
    return offset.group.number


def _ends(offset: SourceOffset) -> dict[int, int]:
    return {p: at.offset for p, at in offset.topics[TOPIC].end.items()}
