"""The processes of a churn: each is a member of the group, and reads rows of the partitions that it has.

Member, session and assignors are the production code. Instead of stores there are the group's state as a value, and
dictionaries of heartbeats and of requests to join.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark_log_coordinator.assignors.subscription import TopicPartition
from pyspark_log_coordinator.environment import Environment
from pyspark_log_coordinator.group import machine
from pyspark_log_coordinator.group.config import MemberSettings
from pyspark_log_coordinator.group.lifecycle import StartGroup
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit
from pyspark_log_coordinator.group.state import Group
from pyspark_log_coordinator.journal.state_machine import Outcome
from pyspark_log_coordinator.membership.group_member import GroupMember
from pyspark_log_coordinator.membership.session import Session
from pyspark_log_coordinator.membership.shared_partitions import SharedPartitions
from pyspark_log_storage.errors import FencedInstance, LogError

if TYPE_CHECKING:
    from tests.simulator.churn import Churn

TOPIC = "t"
STRATEGIES = {"eager": "range", "static": "range", "cooperative": "cooperative-sticky"}
Name = tuple[str, int]
COMMITS = 0.05
"""How often a process commits, as a probability for each poll."""


class Journal:
    """The group's journal, and what its members leave for each other beside it.

    Every accepted commit is held against the assignment.
    """

    def __init__(self, churn: Churn) -> None:
        self._churn = churn
        self.group = Group()
        self.number = 0
        self.notes: dict[str, dict[Name, bytes]] = {}
        """What the members leave for each other, by folder."""

    def submit(self, command: Any) -> list[Any]:
        """Carry out a command; return its events."""
        before = self.group
        events = machine.decide(before, command, int(self._churn.now * 1000))
        if not events:
            return events
        after = before
        for event in events:
            after = machine.evolve(after, event)
        machine.MACHINE.check_entry(before, events, after, self.number + 1)
        self.group, self.number = after, self.number + 1
        if isinstance(command, OffsetCommit):
            self._churn.committed(before, command)
        self._churn.decided(events, before)
        return events


class Handle:
    """The group as one process knows it: `GroupHandle`, its journal and the log in one."""

    journal_id = "g"
    is_remote = False

    def __init__(self, journal: Journal, environment: Environment) -> None:
        self._journal = journal
        self.environment = environment
        self.journal = self
        self.number = 0
        self.state = Group()

    def open(self, *, create: bool) -> None:
        pass

    def group(self, group_id: str, *, create: bool) -> Handle:
        self.refresh(create=create)
        return self

    @property
    def may_have_more(self) -> bool:
        return self.number < self._journal.number

    def refresh(self, *, create: bool = False) -> Group:
        if create:
            self._journal.submit(StartGroup("g"))
        self.number, self.state = self._journal.number, self._journal.group
        return self.state

    def submit(self, command: Any) -> Outcome[Group]:
        try:
            events = self._journal.submit(command)
        finally:
            self.refresh()
        return Outcome(self.number, self.state, events)

    def notes(self, folder: str) -> dict[Name, bytes]:
        """Return what the members have left for each other in a folder."""
        return self._journal.notes.setdefault(folder, {})


class Notes:
    """In place of `MemberObjects`: what the members leave for each other beside the journal."""

    def __init__(self, handle: Handle, folder: str, environment: Environment) -> None:
        self._notes = handle.notes(folder)
        self._own: dict[str, int] = {}

    def create(self, member_id: str, number: int, data: bytes) -> None:
        self.delete_own(member_id)
        self._own[member_id] = number
        self._notes[member_id, number] = data

    def names(self) -> Iterable[Name]:
        return self._notes.keys() | ()

    def read(self, names: Iterable[Name]) -> list[bytes]:
        return [self._notes[each] for each in names if each in self._notes]

    def delete(self, names: Iterable[Name]) -> None:
        for each in list(names):
            self._notes.pop(each, None)

    def delete_own(self, member_id: str) -> None:
        if member_id in self._own:
            self.delete([(member_id, self._own.pop(member_id))])


class Process:
    """A consumer: it reads rows of the partitions that it has, and commits now and then."""

    def __init__(self, churn: Churn, number: int) -> None:
        self._churn = churn
        self.name = f"c{number:03d}"
        self.wakes = float("inf")
        self.positions: dict[TopicPartition, int] = {}
        self.based: dict[TopicPartition, int] = {}
        """Where the rows begin that it has read and not committed."""
        self.member: GroupMember | None = None
        self.starts = 0

    def start(self) -> None:
        """Begin, with nothing in memory."""
        churn = self._churn
        self.shared = SharedPartitions([STRATEGIES[churn.kind]], self)
        instance = self.name if churn.kind == "static" else ""
        settings = MemberSettings(instance_id=instance, client_id=self.name)
        self.session = Session(Handle(churn.journal, churn.environment), "g", settings)  # type: ignore[arg-type]
        self.member = GroupMember(self.session, self.shared)
        self.starts += 1
        churn.schedule(self, 0.0)

    def poll(self) -> None:
        """Do what is due, and say when to wake next."""
        assert self.member is not None
        try:
            self.member.poll()
        except FencedInstance:
            self.stop()
            return
        self._read()
        if self._churn.chance.random() < COMMITS:
            self._commit(self.positions)
        self._churn.schedule(self, self._pause())

    def _pause(self) -> float:
        assert self.member is not None
        if self.session.is_rebalancing and self.session.beaten is not None and not self.member.is_joining:
            return self.session.until_heartbeat()  # until the journal goes on to another stage
        return self.member.pause()

    def leave(self) -> None:
        """End as a program that is stopped: it commits what it has read, and leaves unless it is static."""
        assert self.member is not None
        self.shared.leave()
        self.member.leave()
        self.stop()

    def stop(self) -> None:
        """End without a word."""
        self.member, self.wakes = None, float("inf")
        self._drop(list(self.positions))

    # What SharedPartitions calls

    def topics(self) -> tuple[str, ...]:
        return (TOPIC,)

    def partitions(self, topics: Iterable[str]) -> Mapping[str, int]:
        return {TOPIC: self._churn.partitions}

    def assigned(self, added: Sequence[TopicPartition], group: Group) -> None:
        for each in added:
            known = group.committed(TOPIC, each.partition)
            self.positions[each] = self.based[each] = 0 if known is None else known.offset
        self._churn.reads(added, 1)

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._read()
        self._commit(partitions)
        self._churn.stopped_members += 1
        self._drop(partitions)

    def rewound(self, group: Group, since: int) -> None:
        raise AssertionError("nobody rewinds the group")

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._churn.stopped_members += 1
        self._drop(partitions)

    def _read(self) -> None:
        for each in self.positions:
            self.positions[each] += 1

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        dropped = [each for each in partitions if each in self.positions]
        for each in dropped:
            del self.positions[each], self.based[each]
        self._churn.reads(dropped, -1)

    def _commit(self, partitions: Iterable[TopicPartition]) -> None:
        assert self.member is not None
        new = {each: self.positions[each] for each in partitions if each in self.positions}
        if not new:
            return
        self._churn.committing = self
        try:
            self.member.commit({TOPIC: {each.partition: Offset(at) for each, at in new.items()}})
        except LogError:
            self._churn.counts["commits refused"] += 1
            return
        self.based.update(new)
        self._churn.counts["commits"] += 1
