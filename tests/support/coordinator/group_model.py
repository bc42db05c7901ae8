"""All that can happen to a group of three processes and three partitions: the production machine and assignors.

    join        a process joins, for the first time or after it was removed
    rejoin      a member rejoins while a rebalance waits, or as the leader, or because it gave up partitions
    leave       a member leaves
    sync        the leader assigns the partitions
    read        a member reads its assignment in a stable group: from then on it commits for that generation
    doze        a thread of a process falls asleep. It wakes up at any time, and commits what its process owned then
    expire      somebody takes a member for dead, rightly or wrongly
    complete    somebody takes the time of the join barrier for over
    expire-sync somebody takes the leader's time for over

In any order: clocks may differ by anything, so each time-out may pass at any moment. Commits change nothing that
matters here. So in every state each process, and the thread that dozes, tries to commit each partition that it believes
to own, and what must hold is checked of each commit that is accepted.

Bound: the generation. What the machine does to a state of the group is done once and kept. Numbers that only tell the
newest from an older action or barrier are made equal, because every observer may be right or wrong here anyway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest import mock

import msgspec

from pyspark_log_coordinator.assignors import consumer
from pyspark_log_coordinator.assignors.subscription import (
    Subscription,
    TopicPartition,
    by_topic,
    decode_assignment,
    encode_subscription,
    flat,
)
from pyspark_log_coordinator.group import machine, offsets
from pyspark_log_coordinator.group.config import GroupConfig
from pyspark_log_coordinator.group.joining import JoinGroup
from pyspark_log_coordinator.group.leaving import ExpireMember, LeaveGroup
from pyspark_log_coordinator.group.lifecycle import StartGroup
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit
from pyspark_log_coordinator.group.rebalance import CompleteJoin, ExpireSync
from pyspark_log_coordinator.group.state import Group, GroupState, MemberDetails, Protocol, joined_members
from pyspark_log_coordinator.group.sync import SyncGroup
from pyspark_log_storage.errors import LogError

PARTITIONS = {"t": 3}
EVERY = frozenset(TopicPartition("t", number) for number in range(3))
COOPERATIVE = "cooperative-sticky"
Owned = frozenset[TopicPartition]


class Belief(NamedTuple):
    """What a thread of a process believes: it commits for this generation what it owns."""

    generation: int = 0
    owned: Owned = frozenset()


class State(NamedTuple):
    """A state of the world."""

    group: int
    beliefs: tuple[Belief, ...]
    dozing: tuple[int, Belief] | None = None
    """The process, and what it believed when its thread fell asleep."""


class Flaws(NamedTuple):
    """What a wrong variant does otherwise."""

    lease: bool = False
    """A process whose lease is over on nobody's clock but its own trusts the lease: its commits are not checked."""
    any_generation: bool = False
    """A commit of a member is accepted for whatever generation."""
    free_in_rebalance: bool = False
    """During a rebalance nobody owns anything, so no commit is checked."""
    early_generation: bool = False
    """A process commits for a generation as soon as it has joined it, before it has read its assignment."""
    one_phase: bool = False
    """Partitions move at once, although their owners have not given them up."""


class Result(NamedTuple):
    """What a search came to."""

    states: int
    steps: int
    accepted: int
    """How many commits were accepted: a search in which all are refused shows nothing."""
    violation: str | None
    story: list[str]


class Model:
    """The states that can be reached from an empty group."""

    def __init__(
        self,
        *,
        processes: dict[str, str],
        generations: int,
        protocol: str = "range",
        flaws: Flaws | None = None,
        stolen: bool = False,
    ) -> None:
        """`processes` are the members that may join, each with its `group.instance.id`, empty if it has none.

        With `stolen`, a fenced member's commit is no violation while nobody else owns the partition.
        """
        self.processes = processes
        self.names = list(processes)
        self.generations = generations
        self.protocol = protocol
        self.flaws = flaws or Flaws()
        self.stolen = stolen
        self._groups: list[Group] = []
        self._numbers: dict[bytes, int] = {}
        self._submitted: dict[Any, int | None] = {}
        self._commits: dict[Any, bool] = {}
        self._assignments: dict[int, dict[str, Owned]] = {}
        self.accepted = 0
        begun = machine.evolve(Group(), machine.decide(Group(), StartGroup("g", GroupConfig(0)), 0)[0])
        self.first = State(self._intern(begun), (Belief(),) * len(processes))

    def search(self) -> Result:
        """Visit all states, the nearest first, up to the first one that breaks a rule."""
        with ExitStack() as stack:
            for patch in self._patches():
                stack.enter_context(patch)
            return self._search()

    def _patches(self) -> Iterator[Any]:
        if self.flaws.lease:
            yield mock.patch.object(offsets, "_check_committer")
        if self.flaws.any_generation:
            yield mock.patch.object(offsets, "check_generation")
        if self.flaws.free_in_rebalance:
            checked = offsets._check_committer

            def unless_rebalancing(group: Group, command: OffsetCommit) -> None:
                if group.state not in {GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE}:
                    checked(group, command)

            yield mock.patch.object(offsets, "_check_committer", unless_rebalancing)
        if self.flaws.one_phase:
            yield mock.patch.dict(consumer.ASSIGNORS, {COOPERATIVE: consumer.assign_sticky})

    def _search(self) -> Result:
        came_from: dict[State, tuple[State, str] | None] = {self.first: None}
        waiting, steps = deque([self.first]), 0
        while waiting:
            state = waiting.popleft()
            for words, after in self._events(state):
                steps += 1
                if after in came_from:
                    continue
                came_from[after] = (state, words)
                violation = self._violation(after)
                if violation is not None:
                    return Result(len(came_from), steps, self.accepted, violation, self._story(after, came_from))
                waiting.append(after)
        return Result(len(came_from), steps, self.accepted, None, [])

    def _story(self, state: State, came_from: dict[State, tuple[State, str] | None]) -> list[str]:
        lines: list[str] = []
        while (before := came_from[state]) is not None:
            lines.append(f"{before[1]:20} -> {self._words(state)}")
            state = before[0]
        return lines[::-1]

    def _words(self, state: State) -> str:
        group = self._groups[state.group]
        told = [f"{group.state.value} generation={group.generation} members={' '.join(group.members)}"]
        for name, belief in zip(self.names, state.beliefs, strict=True):
            if belief.owned:
                told.append(f"{name} believes {_short(belief)}")
        if state.dozing is not None:
            told.append(f"{self.names[state.dozing[0]]} dozes with {_short(state.dozing[1])}")
        return "; ".join(told)

    # What must hold

    def _violation(self, state: State) -> str | None:
        group = self._groups[state.group]
        assigned = self._assigned(state.group)
        if group.state is GroupState.STABLE:
            given = [partition for share in assigned.values() for partition in share]
            if len(given) != len(set(given)):
                return f"generation {group.generation} gives a partition to two members"
            if self.protocol != COOPERATIVE and set(given) != EVERY:
                return f"generation {group.generation} leaves out a partition"
            if self.protocol == COOPERATIVE and (taken := self._taken(state, assigned)) is not None:
                return taken
        threads = list(enumerate(state.beliefs))
        for index, belief in [*threads, state.dozing] if state.dozing is not None else threads:
            name = self.names[index]
            for partition in sorted(belief.owned):
                if not self._may_commit(state.group, name, belief.generation, partition):
                    continue
                self.accepted += 1
                if partition not in assigned.get(name, ()):
                    owner = next((each for each, share in assigned.items() if partition in share), "nobody")
                    if owner == "nobody" and self.stolen:
                        continue
                    return (
                        f"{name} commits {_name(partition)} for generation {belief.generation}, and in generation "
                        f"{group.generation} {owner} owns it"
                    )
        return None

    def _taken(self, state: State, assigned: dict[str, Owned]) -> str | None:
        """Return how a partition was given to a member while another one has not given it up."""
        for name, belief in zip(self.names, state.beliefs, strict=True):
            for other, share in assigned.items():
                taken = share & belief.owned if other != name and name in assigned else None
                # What was taken over in an earlier generation, a zombie may still believe to own.
                if taken and belief.generation == self._groups[state.group].generation - 1:
                    return f"{other} is given {_name(min(taken))}, which {name} has not given up"
        return None

    def _may_commit(self, number: int, name: str, generation: int, partition: TopicPartition) -> bool:
        key = (number, name, generation, partition)
        if key not in self._commits:
            new = {partition.topic: {partition.partition: Offset(1)}}
            try:
                command = OffsetCommit(new, name, generation, self.processes[name])
                self._commits[key] = bool(machine.decide(self._groups[number], command, 0))
            except LogError:
                self._commits[key] = False
        return self._commits[key]

    def _assigned(self, number: int) -> dict[str, Owned]:
        """Return what the members own by the newest assignment."""
        if number not in self._assignments:
            members = self._groups[number].members
            self._assignments[number] = {
                name: frozenset(flat(decode_assignment(each.assignment, name).partitions))
                for name, each in members.items()
            }
        return self._assignments[number]

    # What can happen

    def _events(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield all that can happen next, and the state after it."""
        group = self._groups[state.group]
        for index, name in enumerate(self.names):
            yield from self._act(state, group, index, name)
        for name in group.members:
            yield from self._to(f"expire {name}", state, ExpireMember(name, 0))
        if group.state is GroupState.PREPARING_REBALANCE:
            yield from self._to("complete", state, CompleteJoin(0))
        if group.state is GroupState.COMPLETING_REBALANCE:
            yield from self._to("expire-sync", state, ExpireSync(0))

    def _act(self, state: State, group: Group, index: int, name: str) -> Iterator[tuple[str, State]]:
        belief = state.beliefs[index]
        if belief.owned and state.dozing is None:
            yield f"doze {name}", state._replace(dozing=(index, belief))
        if name not in group.members:
            # It finds out that it was removed, and gives up what it had.
            yield from self._join(f"join {name}", state, index, Belief(), is_rejoin=False)
            return
        member = group.members[name]
        yield from self._to(f"leave {name}", _with(state, index, Belief()), LeaveGroup(name, self.processes[name]))
        if group.state is GroupState.STABLE:
            read = Belief(group.generation, self._assigned(state.group)[name])
            if read != belief:
                yield f"read {name}", _with(state, index, read)
        if group.state is GroupState.COMPLETING_REBALANCE and group.leader == name:
            work = consumer.assign(self.protocol, group.generation, joined_members(group), PARTITIONS)
            yield from self._to(f"sync {name}", state, SyncGroup(name, group.generation, work, self.processes[name]))
        if self.flaws.early_generation and group.state is GroupState.COMPLETING_REBALANCE and belief.owned:
            yield f"look {name}", _with(state, index, belief._replace(generation=group.generation))
        if not member.joined or group.state is GroupState.STABLE:
            kept = belief if self.protocol == COOPERATIVE or self.flaws.early_generation else Belief()
            yield from self._join(f"rejoin {name}", state, index, kept, is_rejoin=True)

    def _join(self, words: str, state: State, index: int, kept: Belief, *, is_rejoin: bool) -> Iterator[Any]:
        name = self.names[index]
        owned = by_topic(list(kept.owned)) if self.protocol == COOPERATIVE else {}
        generation = kept.generation if owned else -1
        protocol = Protocol(self.protocol, *encode_subscription(Subscription(("t",), owned, generation)))
        details = MemberDetails(name, (protocol,), self.processes[name])
        yield from self._to(words, _with(state, index, kept), JoinGroup(details, "consumer", is_rejoin))

    def _to(self, words: str, state: State, command: machine.Command) -> Iterator[tuple[str, State]]:
        number = self._submit(state.group, command)
        if number is not None:
            yield words, state._replace(group=number)

    def _submit(self, number: int, command: machine.Command) -> int | None:
        """Return the number of the group after the command, or None if it changes nothing or is out of bounds."""
        key = (number, msgspec.msgpack.encode(command), type(command))
        if key not in self._submitted:
            before = self._groups[number]
            try:
                events = machine.decide(before, command, 0)
            except LogError:
                events = []
            after = before
            for event in events:
                after = machine.evolve(after, event)
            if events:
                machine.MACHINE.check_entry(before, events, after, 1)
            within = events and after.generation <= self.generations
            self._submitted[key] = self._intern(after) if within else None
        return self._submitted[key]

    def _intern(self, group: Group) -> int:
        """Return the number of a group. The numbers of actions and barriers make no difference."""
        members = {name: msgspec.structs.replace(each, acted=0) for name, each in group.members.items()}
        barrier = group.barrier and msgspec.structs.replace(group.barrier, number=0)
        group = msgspec.structs.replace(group, members=members, actions=0, barriers=0, barrier=barrier)
        data = machine.MACHINE.encode_state(group)
        if data not in self._numbers:
            assert machine.MACHINE.decode_state(data) == group
            self._numbers[data] = len(self._groups)
            self._groups.append(group)
        return self._numbers[data]


def _with(state: State, index: int, belief: Belief) -> State:
    return state._replace(beliefs=(*state.beliefs[:index], belief, *state.beliefs[index + 1 :]))


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}{partition.partition}"


def _short(belief: Belief) -> str:
    return f"{' '.join(map(_name, sorted(belief.owned)))} (generation {belief.generation})"
