"""Members of one group that share the topic's partitions: they join, leave, die, fall asleep and wake up.

What a member commits says where the rows begin that it has read, and which process it is. So the group's journal alone
tells whether each row between two committed offsets was read once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence

from pyspark_log_coordinator.assignors.subscription import TopicPartition
from pyspark_log_coordinator.group.config import MemberSettings
from pyspark_log_coordinator.group.offsets import Offset
from pyspark_log_coordinator.group.state import Group, GroupState
from pyspark_log_coordinator.membership.group_member import GroupMember
from pyspark_log_coordinator.membership.session import Session
from pyspark_log_coordinator.membership.shared_partitions import SharedPartitions
from pyspark_log_storage.errors import FencedInstance, GroupError, LogError
from tests.simulator.actors import Succession, start_next
from tests.simulator.groups import SHARED, GroupHistory, accept_short_sessions, group_of, times_of
from tests.simulator.invariants import require
from tests.simulator.world import TOPIC, Process, World

_STATIC_LONGER = 10
_STRATEGIES = ("range", "cooperative-sticky")
_COMMITS, _NAPS, _LEAVES, _DIES = 0.3, 0.1, 0.01, 0.01
"""What a member does after a poll, as probabilities."""
_LAST_SECONDS = 60.0
"""In which members that were left are expired, and those that are new share everything."""


class Member:
    """One process's member, and the rows that it reads: the offsets up to the HW as it really is."""

    def __init__(self, process: Process, place: str = "member", instance_id: str = "") -> None:
        """`place` is the part of the process that has a log of its own for the member."""
        self._process = process
        world = process.world
        times = times_of(world)
        process.place = place
        self.positions: dict[int, int] = {}
        self._based: dict[int, int] = {}
        self.session_ms = times.session_ms
        """A dynamic member's. A static one's is longer, so that rebalances end without it while it sleeps."""
        # All members of a group have a strategy in common; which one it is differs from world to world.
        self.shared = SharedPartitions([_STRATEGIES[world.seed // 4 % 2]], self)
        settings = MemberSettings(
            instance_id=instance_id,
            session_timeout_ms=self.session_ms * (_STATIC_LONGER if instance_id else 1),
            heartbeat_interval_ms=times.heartbeat_ms,
            max_poll_interval_ms=times.poll_ms,
            client_id=process.name.replace(" ", "-"),
        )
        self._session = Session(process.log, SHARED, settings)
        self.member = GroupMember(self._session, self.shared)

    def configure(self) -> None:
        """Let the group accept short time-outs."""
        accept_short_sessions(self._session.open())

    def poll(self) -> None:
        """Do what is due, and read."""
        self.member.poll()
        self.read()

    def read(self) -> None:
        """Read some rows of each partition."""
        world = self._process.world
        if world.rows is None:
            return
        for p, at in self.positions.items():
            end = world.rows.states[-1].partitions[p].high_watermark
            self.positions[p] = max(at, min(end, at + self._process.chance.randint(0, 3)))

    def commit(self, partitions: Iterable[int], *, again: bool = False) -> None:
        """Commit what was read, and `again` also what was committed before. Raises `LogError`."""
        new = {
            p: Offset(self.positions[p], metadata=f"{self._based[p]} {self._process.name}")
            for p in partitions
            if again or self.positions[p] > self._based[p]
        }
        if new:
            self.member.commit({self._topic_id: new})
            self._based.update({p: self.positions[p] for p in new})

    @property
    def pause(self) -> float:
        """How long the member has nothing to do, in seconds."""
        return min(max(self.member.pause(), 0.001), 0.02)

    @property
    def _topic_id(self) -> str:
        rows = self._process.world.rows
        assert rows is not None
        return rows.topic_id

    # What SharedPartitions calls

    def topics(self) -> tuple[str, ...]:
        return (TOPIC,)

    def partitions(self, topics: Iterable[str]) -> Mapping[str, int]:
        rows = self._process.world.rows
        return {} if rows is None else {TOPIC: len(rows.states[-1].partitions)}

    def assigned(self, added: Sequence[TopicPartition], group: Group) -> None:
        for each in added:
            self._go_to(each.partition, group)

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        try:
            self.commit([each.partition for each in partitions])
        except LogError as error:
            if not isinstance(error, GroupError):
                self._process.world.excused(error)
        finally:
            self.lost(partitions)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        for each in partitions:
            self.positions.pop(each.partition, None)
            self._based.pop(each.partition, None)

    def _go_to(self, p: int, group: Group) -> None:
        known = group.committed(self._topic_id, p)
        self.positions[p] = self._based[p] = 0 if known is None else known.offset


def start_member(world: World, name: str) -> None:
    """Let processes be a member; one that is static may be replaced while it sleeps."""
    is_static = name.endswith("0")
    start_next(
        world, Succession(name), lambda process, _: _live(process, name if is_static else ""), may_be_zombies=is_static
    )


def _live(process: Process, instance_id: str) -> None:
    world, chance = process.world, process.chance
    mine = Member(process, instance_id=instance_id.replace(" ", "-"))
    is_configured = False
    while world.busy:
        try:
            if not is_configured:
                process.log.open(create=True)
                mine.configure()
                is_configured = True
            mine.poll()
            if mine.positions and chance.random() < _NAPS:
                process.store.wait(mine.session_ms / 1000 * chance.uniform(0.5, 5))
                world.counts["members napped"] += 1
                mine.read()
                mine.commit(list(mine.positions), again=True)
            elif chance.random() < _COMMITS:
                mine.commit(list(mine.positions))
            if chance.random() < _LEAVES:
                mine.shared.leave()
                mine.member.leave()
                world.counts["members left"] += 1
                return
        except FencedInstance:
            world.counts["members fenced"] += 1
            return
        except GroupError as error:
            world.counts[f"{type(error).__name__} of a member"] += 1
        except LogError as error:
            world.excused(error)
        if chance.random() < _DIES:
            world.counts["members died"] += 1
            return
        process.store.wait(mine.pause)


def finish(world: World, process: Process) -> None:
    """Hold that two new members share everything once all others are expired, and commit all that there is."""
    history = group_of(world, SHARED)
    if history is None:
        return
    both = [Member(process, f"member {number}") for number in range(2)]
    both[0].configure()  # no member may have got so far
    end = world.clock.now + _LAST_SECONDS
    while not _is_finished(world, history, both):
        require(world.clock.now < end, f"two members do not share and commit everything: {history.states[-1]}")
        for each in both:
            each.poll()
            with contextlib.suppress(GroupError):
                each.commit(list(each.positions))
            process.store.wait(each.pause)


def _is_finished(world: World, history: GroupHistory, both: Sequence[Member]) -> bool:
    assert world.rows is not None
    group: Group = history.states[-1]
    ids = {each.member.member_id for each in both}
    owned = sorted(p for each in both for p in each.positions)
    ends = [each.high_watermark for each in world.rows.states[-1].partitions]
    offsets = group.offsets.get(world.rows.topic_id, {})
    has_all = all(offsets[p].offset >= end if p in offsets else end == 0 for p, end in enumerate(ends))
    is_shared = group.members.keys() == ids and owned == list(range(len(ends)))
    return group.state is GroupState.STABLE and is_shared and has_all
