"""The commands of a story about a group. It begins with `group`, and its machine has neither store nor clock.

    group NAME [delay=MS]              begins an empty group; delay is group.initial.rebalance.delay.ms (0)
    partitions TOPIC=N ...             the topics that consumers share
    tasks TASK ...                     the tasks that Connect's workers share from now on, new ones among them
    wait MS                            time passes

A process of a story is a member, named by its member id. It acts by what it has last read from the journal:

    join M [instance=I] [type=T] [protocols=P,Q] [topics=T,U] [session=MS]
                                       a new process M joins (type consumer, protocol range, topic t)
    rejoin M [topics=T,U]              a process that was in the group before joins again, with what it owns
    complete                           somebody has waited for the join barrier: those that have not joined are dropped
    expire-sync                        somebody has waited for the leader's assignment
    sync M [generation=N]              M assigns the work if it is the leader -> M: t0 t1 | N: t2
    read M                             M reads its assignment, and gives up what is not in it -> t0 t1 [gives up t2]
    leave M | leave instance=I
    expire M [unless-acted]            somebody has heard nothing of M for its session; unless-acted: except for its
                                       newest action, which came in the meantime
    commit M TN=OFFSET ... [generation=N]
                                       M commits, for the generation whose assignment it has read
    commit - TN=OFFSET ... [rewinds=N] a simple consumer commits, which has followed so many rewinds
    reset TN=OFFSET ...                a rewind
    forget TN ...                      deletes committed offsets
    delete                             deletes the group

The outcome is `no change`, `refused ERROR`, or what happened: `waits MS` (a barrier), `joined M`, `replaced M by N`,
`left M`, `expired M`, `late M`, `passed over M`, `generation N leader M protocol P`, `empty`, `assigned`, `committed`,
`rewind N`, `forgotten`, `deleted`.

    state                              -> Stable generation=1 leader=A protocol=range
    members                            -> A B
    committed TN ...                   -> t0=5 t1=none
"""

from collections.abc import Callable
from typing import Any

from pyspark_log_coordinator.assignors import connect, consumer
from pyspark_log_coordinator.assignors.subscription import (
    Assignment,
    TopicPartition,
    by_topic,
    decode_assignment,
    encode_assignment,
    encode_topics,
    flat,
)
from pyspark_log_coordinator.group import machine
from pyspark_log_coordinator.group.config import GroupConfig
from pyspark_log_coordinator.group.joining import (
    ExpireMember,
    JoinGroup,
    LeaveGroup,
    MemberJoined,
    StaticMemberReplaced,
)
from pyspark_log_coordinator.group.machine import DeleteGroup, GroupDeleted, GroupStarted, StartGroup
from pyspark_log_coordinator.group.offsets import (
    Offset,
    OffsetCommit,
    OffsetDelete,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsReset,
    ResetOffsets,
)
from pyspark_log_coordinator.group.rebalance import (
    EndWait,
    GenerationStarted,
    LeaderPassedOver,
    MembersRemoved,
    RebalanceExtended,
    RebalanceStarted,
    SyncGroup,
    WorkAssigned,
)
from pyspark_log_coordinator.group.state import NO_GENERATION, Group, MemberDetails, Protocol, joined_members
from tests.support.coordinator.scenario_words import StoryError, settings


class Process:
    """A process of the story, with what it believes."""

    def __init__(self, name: str, given: dict[str, str]) -> None:
        self.name = name
        self.instance = given.get("instance", "")
        self.protocol_type = given.get("type", consumer.PROTOCOL_TYPE)
        self.session_ms = int(given.get("session", "45000"))
        default = connect.PROTOCOL if self.protocol_type == connect.PROTOCOL_TYPE else "range"
        self.protocols = given.get("protocols", default).split(",")
        self.topics = given.get("topics", "t").split(",")
        self.generation = NO_GENERATION
        self.owned: list[TopicPartition] = []
        self.work = connect.TaskAssignment()

    def details(self) -> MemberDetails:
        protocols = tuple(Protocol(name, *self._told(name)) for name in self.protocols)
        return MemberDetails(self.name, protocols, self.instance, session_timeout_ms=self.session_ms)

    def _told(self, protocol: str) -> tuple[bytes, bytes]:
        """Return the metadata and the state of a protocol."""
        if self.protocol_type == connect.PROTOCOL_TYPE:
            return b"", connect.encode_assignment(self.work)
        if self.protocol_type != consumer.PROTOCOL_TYPE:
            return b"", b""
        # Only these protocols say what a member owns: eager members give up everything before they join.
        owned = by_topic(self.owned) if "sticky" in protocol else {}
        state = encode_assignment(Assignment(owned, self.generation)) if owned else b""
        return encode_topics(tuple(self.topics)), state

    def read(self, group: Group) -> str:
        """Take the assignment, and return it."""
        self.generation = group.generation
        data = group.members[self.name].assignment
        if self.protocol_type == connect.PROTOCOL_TYPE:
            assignment = connect.decode_assignment(data, self.name)
            self.work = assignment
            delay = f" (delay {assignment.delay_ms})" if assignment.delay_ms else ""
            return _told(assignment.tasks, assignment.revoked) + delay
        before, self.owned = self.owned, flat(decode_assignment(data, self.name).partitions)
        return _told(map(_word, self.owned), map(_word, sorted(set(before) - set(self.owned))))


class GroupStage:
    """A group and the processes of its story."""

    def __init__(self, words: list[str]) -> None:
        name, *rest = words
        given = settings(rest, "delay")
        self.state = Group()
        self._now = 0
        self._partitions: dict[str, int] = {}
        self._tasks: dict[str, int] = {}
        self._processes: dict[str, Process] = {}
        self._submit(StartGroup(name, GroupConfig(initial_rebalance_delay_ms=int(given.get("delay", "0")))))
        self.commands: dict[str, Callable[[list[str]], str]] = {
            "partitions": self._set_partitions,
            "tasks": self._set_tasks,
            "wait": self._wait,
            "join": self._join,
            "rejoin": self._rejoin,
            "complete": self._end_wait,
            "expire-sync": self._end_wait,
            "sync": self._sync,
            "read": self._read,
            "leave": self._leave,
            "expire": self._expire,
            "commit": self._commit,
            "reset": self._reset,
            "forget": self._forget,
            "delete": self._delete,
            "state": self._tell_state,
            "members": self._members,
            "committed": self._committed,
        }

    def _submit(self, command: machine.Command) -> str:
        events = machine.decide(self.state, command, self._now)
        for event in events:
            self.state = machine.evolve(self.state, event)
        return ", ".join(map(self._words, events)) or "no change"

    def _words(self, event: Any) -> str:
        match event:
            case RebalanceStarted() | RebalanceExtended():
                return f"waits {event.wait_ms}"
            case MemberJoined():
                return f"joined {event.member.member_id}"
            case StaticMemberReplaced():
                return f"replaced {event.former} by {event.member.member_id}"
            case MembersRemoved():
                return f"{event.reason} {' '.join(event.member_ids)}"
            case LeaderPassedOver():
                return f"passed over {event.member_id}"
            case GenerationStarted():
                # The number of a generation is in no event: each one begins the next.
                leads = f"generation {self.state.generation} leader {event.leader} protocol {event.protocol}"
                return leads if event.leader else "empty"
            case OffsetsReset():
                return f"rewind {self.state.rewinds}"
            case _:
                return _WORDS[type(event)]

    def _set_partitions(self, words: list[str]) -> str:
        self._partitions |= {topic: int(count) for topic, _, count in (word.partition("=") for word in words)}
        return ""

    def _set_tasks(self, words: list[str]) -> str:
        version = 1 + max(self._tasks.values(), default=0)
        self._tasks = {task: self._tasks.get(task, version) for task in words}
        return ""

    def _wait(self, words: list[str]) -> str:
        (duration,) = words
        self._now += int(duration)
        return ""

    def _join(self, words: list[str]) -> str:
        name, *rest = words
        given = settings(rest, "instance", "type", "protocols", "topics", "session")
        process = self._processes[name] = Process(name, given)
        return self._submit(JoinGroup(process.details(), process.protocol_type))

    def _rejoin(self, words: list[str]) -> str:
        name, *rest = words
        process = self._process(name)
        process.topics = settings(rest, "topics").get("topics", ",".join(process.topics)).split(",")
        return self._submit(JoinGroup(process.details(), process.protocol_type, is_rejoin=True))

    def _end_wait(self, words: list[str]) -> str:
        settings(words)
        return self._submit(EndWait(self.state.barriers))

    def _sync(self, words: list[str]) -> str:
        name, *rest = words
        generation = int(settings(rest, "generation").get("generation", self.state.generation))
        process, assignments = self._process(name), {}
        if self.state.leader == name and self.state.protocol:
            assignments = self._assign(process)
        outcome = self._submit(SyncGroup(name, generation, assignments, process.instance))
        if outcome != "assigned" or process.protocol_type not in {consumer.PROTOCOL_TYPE, connect.PROTOCOL_TYPE}:
            return outcome
        return " | ".join(f"{each}: {self._peek(each)}" for each in self.state.members)

    def _assign(self, process: Process) -> dict[str, bytes]:
        members = joined_members(self.state)
        if process.protocol_type == connect.PROTOCOL_TYPE:
            delay_ms = connect.SCHEDULED_REBALANCE_MAX_DELAY_MS
            return connect.assign_members(members, self._tasks, self._now, delay_ms)
        if process.protocol_type == consumer.PROTOCOL_TYPE:
            return consumer.assign(self.state.protocol, self.state.generation, members, self._partitions)
        return {}

    def _peek(self, name: str) -> str:
        data = self.state.members[name].assignment
        if self.state.protocol_type == connect.PROTOCOL_TYPE:
            return " ".join(connect.decode_assignment(data, name).tasks) or "nothing"
        return " ".join(map(_word, flat(decode_assignment(data, name).partitions))) or "nothing"

    def _read(self, words: list[str]) -> str:
        (name,) = words
        if name not in self.state.members:
            raise StoryError(f"{name} is no member, so it has no assignment to read")
        return self._process(name).read(self.state)

    def _leave(self, words: list[str]) -> str:
        (word,) = words
        name, separator, instance = word.partition("=")
        if separator and name == "instance":
            return self._submit(LeaveGroup(instance_id=instance))
        return self._submit(LeaveGroup(name, self._process(name).instance))

    def _expire(self, words: list[str]) -> str:
        name, *rest = words
        before = "unless-acted" in settings(rest, flags=("unless-acted",))
        known = self.state.members.get(name)
        return self._submit(ExpireMember(name, known.acted - before if known else 0))

    def _commit(self, words: list[str]) -> str:
        name, *rest = words
        named = [word for word in rest if word.startswith(("rewinds=", "generation="))]
        given = settings(named, "rewinds", "generation")
        offsets = _offsets([word for word in rest if word not in named])
        if name == "-":
            return self._submit(OffsetCommit(offsets, rewinds=int(given.get("rewinds", "0"))))
        process = self._process(name)
        generation = int(given.get("generation", process.generation))
        return self._submit(OffsetCommit(offsets, name, generation, process.instance))

    def _reset(self, words: list[str]) -> str:
        return self._submit(ResetOffsets(_offsets(words)))

    def _forget(self, words: list[str]) -> str:
        return self._submit(OffsetDelete(by_topic([_partition(word) for word in words])))

    def _delete(self, words: list[str]) -> str:
        settings(words)
        return self._submit(DeleteGroup())

    def _tell_state(self, words: list[str]) -> str:
        settings(words)
        led = f" leader={self.state.leader} protocol={self.state.protocol}" if self.state.leader else ""
        return f"{self.state.state.value} generation={self.state.generation}{led}"

    def _members(self, words: list[str]) -> str:
        settings(words)
        return " ".join(self.state.members) or "none"

    def _committed(self, words: list[str]) -> str:
        found = {word: self.state.committed(*_partition(word)) for word in words}
        return " ".join(f"{word}={'none' if each is None else each.offset}" for word, each in found.items())

    def _process(self, name: str) -> Process:
        if name not in self._processes:
            raise StoryError(f"there is no process {name!r}: begin with 'join'")
        return self._processes[name]


_WORDS = {
    GroupStarted: "started",
    WorkAssigned: "assigned",
    OffsetsCommitted: "committed",
    OffsetsDeleted: "forgotten",
    GroupDeleted: "deleted",
}


def _told(has: Any, gives_up: Any) -> str:
    lost = " ".join(gives_up)
    return (" ".join(has) or "nothing") + (f", gives up {lost}" if lost else "")


def _word(partition: TopicPartition) -> str:
    return f"{partition.topic}{partition.partition}"


def _partition(word: str) -> TopicPartition:
    topic = word.rstrip("0123456789")
    if not topic or topic == word:
        raise StoryError(f"{word!r} is no partition; write t0, t1, ...")
    return TopicPartition(topic, int(word[len(topic) :]))


def _offsets(words: list[str]) -> dict[str, dict[int, Offset]]:
    offsets: dict[str, dict[int, Offset]] = {}
    for word in words:
        name, _, offset = word.partition("=")
        topic, number = _partition(name)
        offsets.setdefault(topic, {})[number] = Offset(int(offset))
    return offsets
