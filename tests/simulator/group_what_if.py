"""What if: commands that somebody might send to a group at this moment, as `what_if` asks a topic.

After each entry of a group's journal a walk begins at the state that the world has reached. Members join, rejoin, are
replaced, fall behind, commit and are rewound; nothing of it happens. On the way an observer looks at the members now
and then, and somebody asks what a member would do next, whatever that member remembers.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from pyspark_log_coordinator.group import machine
from pyspark_log_coordinator.group.joining import JoinGroup, JoinRequest, JoinTogether
from pyspark_log_coordinator.group.leaving import ExpireMember, LeaveGroup
from pyspark_log_coordinator.group.lifecycle import DeleteGroup, StartGroup
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit, OffsetDelete, ResetOffsets
from pyspark_log_coordinator.group.rebalance import CompleteJoin, ExpireSync
from pyspark_log_coordinator.group.state import NO_GENERATION, Group, GroupState, MemberDetails, Protocol
from pyspark_log_coordinator.group.sync import SyncGroup
from pyspark_log_coordinator.membership import next_step as member_rules
from pyspark_log_coordinator.membership.liveness import Liveness
from pyspark_log_coordinator.membership.next_step import Standing, Step
from pyspark_log_storage.errors import LogError
from tests.simulator import group_rules
from tests.simulator.invariants import require

STEPS = 16
"""How many commands a walk has."""
_MISTAKEN = 0.15
_TOPIC = "topic"
_PARTITIONS = range(3)
_GAP_SECONDS = 1.0
"""Of a longer time between two looks of an observer so much counts."""


class GroupWhatIf:
    """The walks of one world."""

    def __init__(self, seed: int, counts: Counter[str]) -> None:
        self._seed = seed
        self._counts = counts

    def walk(self, group: Group, number: int, now: int) -> None:
        """Ask one question after another, beginning at the state after entry `number`, at `now` (ms)."""
        chance = random.Random(f"what if {self._seed} {group.group_id} had {number}")
        observer = _Observer(chance)
        for step in range(STEPS):
            now += chance.choice([0, 10, 1000])
            command = chance.choice(_QUESTIONS)(_Asking(group, chance, f"{number}x{step}"))
            group = self._answered(group, command, now)
            observer.look(group)
            _hold_next_step(group, chance)

    def _answered(self, group: Group, command: Any, now: int) -> Group:
        name = type(command).__name__
        try:
            events = machine.decide(group, command, now)
        except LogError as error:
            self._counts[f"what if {type(error).__name__}"] += 1
            group_rules.hold_refusal(group, command, error)
            return group
        after = group_rules.followed(group, events)
        group_rules.hold_state(after)
        group_rules.hold_answer(group, command, events, after, now)
        self._counts[f"what if {name}"] += bool(events)
        return after


class _Observer:
    """A process that looks at the members now and then, and what it must have made of that."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._liveness = Liveness(_GAP_SECONDS)
        self._now = 0.0
        self._newest: dict[str, int] = {}
        self._silent: dict[str, float] = {}
        self._acted: dict[str, int] = {}
        self._barrier, self._waited = 0, 0.0

    def look(self, group: Group) -> None:
        """Look once more, and hold who is taken for dead, and which wait for ended.

        Time in which the observer did not look counts for nobody. A member lives that acts, or beats anew.
        """
        chance = self._chance
        passed = chance.choice([0.125, 0.5, 32.0])  # exact in binary
        self._now += passed
        counted = min(passed, _GAP_SECONDS)
        beats = {}
        for name, member in group.members.items():
            newest = self._newest.get(name, 0)
            found = chance.choice([newest, newest, newest, newest + 1, newest - 1, None])
            if found is not None and found >= 0:
                beats[name] = found
            lives = name not in self._acted or self._acted[name] != member.acted
            if lives:
                newest = beats.get(name, newest if name in self._acted else 0)
            elif beats.get(name, newest) > newest:
                newest, lives = beats[name], True
            self._newest[name], self._acted[name] = newest, member.acted
            self._silent[name] = 0.0 if lives else self._silent[name] + counted
        for name in self._acted.keys() - group.members.keys():
            del self._acted[name], self._newest[name], self._silent[name]
        expired = {each.member_id for each in self._liveness.hear(group, beats, self._now)}
        sessions = {name: each.details.session_timeout_ms / 1000 for name, each in group.members.items()}
        due = {name for name, silent in self._silent.items() if silent >= sessions[name]}
        require(expired == due, f"{expired} are taken for dead after {self._silent}, their sessions are {sessions}")
        self._wait(group, counted)

    def _wait(self, group: Group, counted: float) -> None:
        command = self._liveness.watch(group, self._now)
        number = 0 if group.barrier is None else group.barrier.number
        self._waited = self._waited + counted if number == self._barrier else 0.0
        self._barrier = number or self._barrier
        is_over = group.barrier is not None and self._waited >= group.barrier.wait_ms / 1000
        require((command is not None) == is_over, f"{command} after {self._waited} s of {group.barrier}")


def _hold_next_step(group: Group, chance: random.Random) -> None:
    """Hold what a member would do next: it works with what it was assigned in this generation, after all rewinds."""
    instance_id = chance.choice(["", "", *(each.details.instance_id for each in group.members.values())])
    name = chance.choice([*group.members, "gone"])
    if name in group.members:
        instance_id = group.members[name].details.instance_id
    generation = chance.choice([group.generation, group.generation, group.generation - 1, NO_GENERATION])
    reported = max(generation, chance.choice([group.generation, group.generation - 1, generation]))
    standing = Standing(
        name,
        instance_id,
        chance.random() < 0.7,
        generation,
        reported,
        chance.choice([group.rewinds, max(group.rewinds - 1, 0)]),
    )
    step = member_rules.next_step(group, standing)
    what = f"{standing} in {group.state.value}, generation {group.generation}, rewind {group.rewinds}: {step}"
    if name not in group.members:
        if standing.is_member:
            is_taken = bool(instance_id) and group.instance(instance_id) is not None
            require(step is (Step.FENCED if is_taken else Step.LOST), what)
        return
    if group.state is GroupState.PREPARING_REBALANCE:
        require(step is (Step.WAIT if group.members[name].joined else Step.JOIN), what)
    elif group.state is GroupState.COMPLETING_REBALANCE:
        require(step is (Step.ASSIGN if group.leader == name else Step.WAIT), what)
    else:
        is_current = generation == group.generation
        has_followed = standing.rewinds == group.rewinds
        require(step is (Step.TAKE if not is_current else Step.WORK if has_followed else Step.REWIND), what)
        taken = member_rules.after_take(group, standing)
        known = taken.generation, taken.reported, taken.rewinds
        require(known == (group.generation, group.generation, group.rewinds), f"{taken} has taken its work")
    has_missed = generation != NO_GENERATION and bool(instance_id) and reported < group.generation
    require(member_rules.has_missed_a_join(group, standing) == has_missed, f"{what}: missed {has_missed}")
    told = member_rules.after_join(group, standing)
    if group.state is GroupState.PREPARING_REBALANCE and generation != NO_GENERATION:
        follows = reported >= group.generation
        require(told.reported == (group.generation + 1 if follows else reported), f"{what}: it joins as {told}")


class _Asking:
    """What a command may name, at random."""

    def __init__(self, group: Group, chance: random.Random, name: str) -> None:
        self.group = group
        self.chance = chance
        self.name = name

    def is_so(self) -> bool:
        return self.chance.random() >= _MISTAKEN

    def member(self) -> tuple[str, str]:
        """Return a member's ids, mostly its own."""
        chance = self.chance
        name = chance.choice([*self.group.members, *([] if self.is_so() else ["gone"])] or ["gone"])
        known = self.group.members.get(name)
        own = "" if known is None else known.details.instance_id
        others = [each.details.instance_id for each in self.group.members.values()]
        return name, chance.choice([own, own, ""]) if self.is_so() else chance.choice([own, "nobody", *others])

    def generation(self) -> int:
        return self.group.generation if self.is_so() else self.group.generation - 1

    def offsets(self) -> dict[str, dict[int, Offset]]:
        chance = self.chance
        text = chance.choice(["", "", "text", "\u00e9" * (self.group.config.offset_metadata_max_bytes // 2 + 1)])
        chosen = [p for p in _PARTITIONS if chance.random() < 0.6]
        return {_TOPIC: {p: Offset(chance.randint(0, 2), chance.randint(-1, 1), text) for p in chosen}}

    def details(self) -> MemberDetails:
        """Return those of a new member, of a process that wants a place, or of a member that wants something else."""
        chance, members = self.chance, self.group.members
        known = members[chance.choice([*members])].details if members and chance.random() < 0.7 else None
        if known is not None and chance.random() < 0.4:
            return known
        names = ["range", "roundrobin", "sticky"]
        protocols = tuple(Protocol(each, chance.choice([b"", b"x"])) for each in names if chance.random() < 0.7)
        if known is not None and chance.random() < 0.5:
            if known.instance_id and chance.random() < 0.7:
                return msgspec.structs.replace(known, member_id=f"m{self.name}", rebalance_timeout_ms=self._time())
            return msgspec.structs.replace(known, protocols=protocols or known.protocols)
        instance_id = chance.choice(["", "", "place", "seat"])
        low, high = self.group.config.min_session_timeout_ms, self.group.config.max_session_timeout_ms
        session = chance.choice([low, high]) if self.is_so() else chance.choice([low - 1, high + 1])
        own = protocols or (Protocol("range"),)
        return MemberDetails(f"m{self.name}", own, instance_id, max(session, 1), self._time())

    def join(self) -> JoinGroup:
        details = self.details()
        kind = self.group.protocol_type if self.group.members else "consumer"
        is_rejoin = details.member_id in self.group.members if self.is_so() else self.chance.random() < 0.5
        return JoinGroup(details, kind, is_rejoin)

    def _time(self) -> int:
        return self.chance.choice([500, 1000, 3000])


def _join(asking: _Asking) -> JoinGroup:
    return asking.join()


def _join_together(asking: _Asking) -> JoinTogether:
    group, others = asking.group, []
    for number in range(2):
        join = _Asking(group, asking.chance, f"{asking.name}x{number}").join()
        known = group.members.get(join.member.member_id)
        acted = (known.acted if known is not None else 0) - (not asking.is_so())
        others.append(JoinRequest(join, asking.generation(), acted))
    return JoinTogether(asking.join(), tuple(others))


def _leave(asking: _Asking) -> LeaveGroup:
    return LeaveGroup(*asking.member())


def _expire(asking: _Asking) -> ExpireMember:
    name, _ = asking.member()
    known = asking.group.members.get(name)
    return ExpireMember(name, (0 if known is None else known.acted) - (not asking.is_so()))


def _end_wait(asking: _Asking) -> CompleteJoin | ExpireSync:
    number = asking.group.barriers - (not asking.is_so())
    return asking.chance.choice([CompleteJoin, ExpireSync])(number)


def _sync(asking: _Asking) -> SyncGroup:
    group, chance = asking.group, asking.chance
    name, instance_id = asking.member()
    if group.leader in group.members and asking.is_so():
        name, instance_id = group.leader, group.members[group.leader].details.instance_id
    work = {each: b"work" for each in group.members if chance.random() < 0.7}
    return SyncGroup(name, asking.generation(), work, instance_id)


def _commit(asking: _Asking) -> OffsetCommit:
    group = asking.group
    rewinds = group.rewinds if asking.is_so() else max(group.rewinds - 1, 0)
    if asking.is_so() and group.members:
        name, instance_id = asking.member()
        return OffsetCommit(asking.offsets(), name, asking.generation(), instance_id, rewinds)
    return OffsetCommit(asking.offsets(), rewinds=rewinds)


def _reset(asking: _Asking) -> ResetOffsets:
    return ResetOffsets(asking.offsets(), asking.chance.random() < 0.5)


def _delete_offsets(asking: _Asking) -> OffsetDelete:
    return OffsetDelete({_TOPIC: tuple(p for p in _PARTITIONS if asking.chance.random() < 0.6)})


def _delete_group(_: _Asking) -> DeleteGroup:
    return DeleteGroup()


def _start(asking: _Asking) -> StartGroup:
    return StartGroup(asking.group.group_id, asking.group.config)


_QUESTIONS: Sequence[Callable[[_Asking], Any]] = (
    *(_join,) * 6,
    *(_join_together,) * 2,
    _leave,
    _expire,
    *(_end_wait,) * 3,
    *(_sync,) * 4,
    *(_commit,) * 5,
    *(_reset,) * 2,
    _delete_offsets,
    _delete_group,
    _start,
    _start,
)
