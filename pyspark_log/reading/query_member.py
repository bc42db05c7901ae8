"""A streaming query as a member of its group: it shares the topics' partitions with the group's other queries.

    planner            between two micro-batches: `look`, then `hand_over`; before a batch is read: `check_owned`
    a thread           heartbeats and rebalances, also while a micro-batch runs. They take nothing from the query

`hand_over` commits what the query has processed and what it takes over, in one entry, and only then gives up what the
others get. So a partition has one reader at a time, and the next one begins at the offset where this one ended.

The query is a static member: a process that starts again with its `group.instance.id` keeps its partitions. If the
group has given them to others, because the session had expired, `FencedMember` is raised unless all that was processed
had been committed.

Beside the offset of a partition that queries share stands how far each of them has read it:

    {"read":{"etl-1":120,"etl-2":180},"partitions":6}

`read` has the offset that each query, by its `group.instance.id`, has committed last. The newest committer is the last
one: a query commits what it takes over before it reads it, so this is the owner. A query that comes back can tell
whether all that it has processed was committed before others continued. `partitions` is how many partitions the topic
had when the group began to read it: later ones are read from their start.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, NoReturn

import msgspec

from pyspark_log import opening
from pyspark_log.reading.group_offsets import warn_once
from pyspark_log.reading.source_offset import Membership, Position, TakenRewinds
from pyspark_log_coordinator.assignors.subscription import decode_assignment, flat
from pyspark_log_coordinator.group.config import MemberSettings
from pyspark_log_coordinator.group.leaving import LeaveGroup
from pyspark_log_coordinator.group.offsets import Offset
from pyspark_log_coordinator.group.state import NO_GENERATION
from pyspark_log_coordinator.membership.group_member import GroupMember
from pyspark_log_coordinator.membership.member_thread import MemberThread
from pyspark_log_coordinator.membership.session import Session
from pyspark_log_coordinator.membership.shared_partitions import QueryPartitions
from pyspark_log_storage import logs
from pyspark_log_storage.errors import (
    FencedInstance,
    FencedMember,
    GroupError,
    InvalidOption,
    LogError,
    OutcomeUnknown,
    RebalanceInProgress,
    RewindPending,
    UnknownTopic,
)
from pyspark_log_storage.stored_fields import Count
from pyspark_log_storage.stores.storage_options import NO_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark_log.options.source import GroupMembership
    from pyspark_log.reading.source_offset import SourceOffset, TopicPartition
    from pyspark_log_coordinator.group.offsets import NewOffsets
    from pyspark_log_coordinator.group.state import CommittedOffset, Group, MemberId
    from pyspark_log_storage.stores.storage_options import StorageOptions

REBALANCE_INTERVALS = 5
"""A rebalance waits so many heartbeat intervals for a query. One that is late, or restarts, keeps what it has."""
JOIN_SECONDS = 60.0
"""How long a query that is started again tries to take its former place in the group."""
SHORTEST_JOIN_PAUSE, LONGEST_JOIN_PAUSE = 0.005, 0.02
"""For a query that waits for its place in the group, in seconds."""
READERS_MAX = 8
"""How many queries are remembered for a partition: those that committed last."""


class Handover(msgspec.Struct, frozen=True, omit_defaults=True):
    """The text that is committed beside an offset, parsed."""

    read: dict[str, Count] = {}
    partitions: Count | None = None

    @property
    def owner(self) -> str | None:
        """The query that has committed last, or None if none has."""
        return next(reversed(self.read), None)

    def committed(self, instance_id: str, offset: int) -> Handover:
        """Return the text after a commit of a query."""
        read = {name: at for name, at in self.read.items() if name != instance_id} | {instance_id: offset}
        return msgspec.structs.replace(self, read=dict(list(read.items())[-READERS_MAX:]))

    def text(self) -> str:
        """Return the text to commit."""
        return msgspec.json.encode(self).decode()


_decode = msgspec.json.Decoder(Handover).decode


def handover_of(committed: CommittedOffset | None) -> Handover:
    """Return what is committed beside an offset; nothing if it was not committed by a query that shares its topic."""
    if committed is None or not committed.metadata.startswith("{"):
        return Handover()
    try:
        return _decode(committed.metadata)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return Handover()


def is_later(number: int, begun: int | None) -> bool:
    """Return whether a partition was added after the group began to read its topic, which then had `begun` partitions.

    If that is not known (None), the answer is yes: no rows are left out then.
    """
    return begun is None or number >= begun


def begun_with(now: int, committed: Iterable[CommittedOffset]) -> int | None:
    """Return how many partitions a topic had when the group began to read it, None if its commits do not say it.

    `committed` are the offsets of the topic. If there are none, the group begins `now`, when it has so many.
    """
    found = list(committed)
    return min(_counts(found), default=None) if found else now


def _counts(committed: Iterable[CommittedOffset]) -> list[int]:
    found = [handover_of(each).partitions for each in committed]
    return [each for each in found if each is not None]


class View(msgspec.Struct, frozen=True):
    """The group at one moment, and what the query owns."""

    group: Group
    journal_id: str
    member_id: MemberId
    membership: Membership
    owned: frozenset[TopicPartition]
    leaving: frozenset[TopicPartition]

    @property
    def staying(self) -> frozenset[TopicPartition]:
        """What the next micro-batch may read."""
        return self.owned - self.leaving

    @property
    def rewinds(self) -> TakenRewinds:
        """The rewind that a query that continues from here has followed."""
        return TakenRewinds(self.journal_id, self.group.rewinds)

    def is_rewound(self, before: SourceOffset, key: TopicPartition) -> bool:
        """Return whether the group was reset in a partition of `before`, and that has not followed it."""
        taken = 0 if before.group is None else before.group.number
        return self.group.rewound(before.topics[key[0]].topic_id, key[1], taken) is not None

    def handover(self, before: SourceOffset, key: TopicPartition) -> Handover:
        """Return how far queries have read a partition of `before`."""
        return handover_of(self.group.committed(before.topics[key[0]].topic_id, key[1]))


class Place(msgspec.Struct, frozen=True):
    """Where the query is in a partition: the next row to read."""

    topic_id: str
    number: int
    at: Position
    partitions: int | None = None
    """How many the topic had when the group began to read it, if the query begins to read the partition."""


class QueryMember:
    """A query's membership, used by the planner's thread and by one of its own."""

    def __init__(
        self, path: str, group_id: str, options: GroupMembership, storage_options: StorageOptions = NO_OPTIONS
    ) -> None:
        """Do no I/O yet."""
        self._options = options
        self._group_id = group_id
        self._log = opening.own_log(path, storage_options)
        self._lock = threading.RLock()
        self._thread = MemberThread(self.act, "a query's member of a group failed", "pyspark_log query member")
        settings = MemberSettings(
            instance_id=options.instance_id,
            session_timeout_ms=options.session_timeout_ms,
            heartbeat_interval_ms=options.heartbeat_interval_ms,
            client_id="spark",
            host=socket.gethostname(),
        )
        rebalance_ms = REBALANCE_INTERVALS * settings.interval_ms(is_remote=self._log.is_remote)
        settings = msgspec.structs.replace(settings, max_poll_interval_ms=rebalance_ms)
        self._session = Session(self._log, group_id, settings)
        self._partitions = QueryPartitions(self, keeps=options.keeps_partitions, is_member=self._is_member)
        self._member = GroupMember(self._session, self._partitions)
        self._counts: Mapping[str, int] = {}
        self._is_begun = False
        self._fenced: FencedMember | None = None

    # What the planner calls

    def subscribe(self, counts: Mapping[str, int]) -> None:
        """Share these topics, which have so many partitions, from now on."""
        self._counts = counts

    def begin(self, before: SourceOffset) -> None:
        """Join, if that is not done, as the owner of the partitions of the newest offset.

        Raises `InvalidOption` if the offset is that of another group or member, and `LogError`.
        """
        with self._lock:
            if self._is_begun:
                return
            handle = self._session.open()
            self._check_offset(before, handle.journal_id)
            self._session.refresh(create=True)
            if before.member is not None and self._is_member(since=before.member.generation):
                self._partitions.restore(before.ends(), before.member.generation)
            self._join()
            if before.member is not None and not self._is_member(since=before.member.generation):
                self._partitions.lose()
                self._member.rejoin()
            self._is_begun = True
            self._thread.start()

    def group_id_and_rewinds(self) -> tuple[str, int]:
        """Return the id of the group's journal, and its newest rewind that is known. Raises `LogError`."""
        with self._lock:
            return self._session.open().journal_id, self._session.group.rewinds

    def look(self) -> View | None:
        """Return the newest state, or None while the query waits for its assignment.

        Raises `FencedInstance` if another process is the member now, and `LogError`.
        """
        with self._lock:
            try:
                self._refresh(polls=True)
            except LogError as error:
                if not error.retriable:
                    raise
                warn_once(self._group_id, str(error))
                return None
            return None if self._member.generation == NO_GENERATION else self._view()

    def hand_over(self, view: View, places: Iterable[Place]) -> bool:
        """Commit where the query is and what it takes over, and give up what is leaving. Return whether it is done.

        If it is not done the group is rebalancing, or was rewound, or a store did not answer: look again. What was
        committed already is not committed again.
        """
        name = self._options.instance_id
        new: NewOffsets = {}
        for each in places:
            known = handover_of(view.group.committed(each.topic_id, each.number))
            if known.partitions is None:
                known = msgspec.structs.replace(known, partitions=each.partitions)
            if known.owner != name or known.read[name] != each.at.offset:
                text = known.committed(name, each.at.offset).text()
                new.setdefault(each.topic_id, {})[each.number] = Offset(each.at.offset, each.at.epoch, text)
        with self._lock:
            if self._member.member_id != view.member_id or not view.owned <= self._partitions.owned:
                return False
            if not self._commit(new, view):
                return False
            if view.leaving and view.leaving == self._partitions.leaving:
                self._partitions.give_up()
                self._member.rejoin()
                self._poll()
                self._thread.wake()
                return True
            return not view.leaving

    def check_settled(self, view: View, before: SourceOffset) -> None:
        """Raise `FencedMember` if others have partitions whose newest rows in `before` were not committed before.

        A partition that was rewound is read again from there, whoever does it.
        """
        lost = [
            key
            for key, end in before.ends().items()
            if self.is_elsewhere(view, before, key)
            and not view.is_rewound(before, key)
            and view.handover(before, key).read.get(self._options.instance_id) != end.offset
        ]
        if lost:
            self._fail(view.group, lost)

    def is_elsewhere(self, view: View, before: SourceOffset, key: TopicPartition) -> bool:
        """Return whether the query does not own a partition of `before` any more, or others have read it since."""
        if key not in view.owned:
            return True
        owner = None if view.is_rewound(before, key) else view.handover(before, key).owner
        return owner not in {None, self._options.instance_id}

    def check_owned(self, ended: SourceOffset, keys: Iterable[TopicPartition]) -> None:
        """Raise `FencedMember` unless the query owns the partitions of a batch, which has rows of `keys`.

        Raises `FencedInstance` if another process is the member now, and `LogError`.
        """
        with self._lock:
            self.begin(ended)
            self._refresh()
            if self._member.member_id not in self._session.group.members:
                self._partitions.lose()
            view = self._view()
        lost = [key for key in keys if self.is_elsewhere(view, ended, key)]
        if lost:
            self._fail(view.group, lost)

    # What the group asks, see `shared_partitions.Topics`

    def topics(self) -> tuple[str, ...]:
        """Return the topics that the query subscribes to."""
        return tuple(self._counts)

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """Return how many partitions each topic has.

        Other queries may subscribe to more topics, and may have seen partitions of which this one has not planned yet.
        """
        known, found = dict(self._counts), {}
        for name, member in self._session.group.members.items():
            for topic, numbers in decode_assignment(member.assignment, name).partitions.items():
                if max(numbers, default=-1) >= known.get(topic, 0):
                    known.pop(topic, None)
        for topic in topics:
            if topic in known:
                found[topic] = known[topic]
                continue
            with contextlib.suppress(UnknownTopic):
                found[topic] = len(self._log.topic(topic).partitions)
        return found

    # Its thread

    def act(self) -> float | None:
        """Do what is due; return after how many seconds there is more to do, None if the member was fenced."""
        with self._lock:
            if self._fenced is not None:
                self._thread.stop()
                return None
            if not self._is_begun:
                return self._session.interval
            try:
                self._member.poll()
            except FencedInstance:  # the planner raises it
                self._thread.stop()
                return None
            except LogError as error:
                self._warn(error)
                return 1.0
            return self._member.pause()

    # Steps

    def _refresh(self, *, polls: bool = False) -> None:
        if self._fenced is not None:
            raise self._fenced
        if not (polls and self._log.is_remote):  # there the member looks when it sends a heartbeat
            self._session.refresh(create=True)
        self._member.poll()

    def _poll(self) -> None:
        try:
            self._member.poll()
        except LogError as error:
            self._warn(error)

    def _warn(self, error: LogError) -> None:
        message = "a query's member of group %(group)r tries again: %(error)s"
        logs.warning(message, group=self._group_id, error=error)

    def _view(self) -> View:
        membership = Membership(self._options.instance_id, self._member.generation)
        partitions = self._partitions
        return View(
            self._session.group,
            self._session.open().journal_id,
            self._member.member_id,
            membership,
            partitions.owned,
            partitions.leaving,
        )

    def _is_member(self, since: int | None = None) -> bool:
        """Return whether the query has been a member without a break, since a generation that gave it partitions."""
        known = self._session.group.instance(self._options.instance_id)
        return known is not None and known.first_generation <= (self._partitions.generation if since is None else since)

    def _join(self) -> None:
        """Wait until the group knows this process."""
        environment = self._log.environment
        deadline = environment.monotonic() + JOIN_SECONDS
        while True:
            self._member.poll()
            if self._member.member_id in self._session.group.members:
                return
            if environment.monotonic() > deadline:
                raise RebalanceInProgress(
                    self._group_id,
                    self._member.member_id,
                    f"the query could not join group {self._group_id!r} for {JOIN_SECONDS:.0f} s; start it again when "
                    "the group's journal can be written",
                )
            environment.sleep(min(max(self._member.pause(), SHORTEST_JOIN_PAUSE), LONGEST_JOIN_PAUSE))

    def _commit(self, new: NewOffsets, view: View) -> bool:
        if not new:
            return True
        command = msgspec.structs.replace(self._member.offset_commit(new), rewinds=view.group.rewinds)
        try:
            self._member.carry_out(command)
        except (RebalanceInProgress, RewindPending):
            return False
        except FencedInstance:
            raise
        except GroupError:  # removed: the next look says what is lost
            return False
        except LogError as error:
            if not (error.retriable or isinstance(error, OutcomeUnknown)):
                raise
            warn_once(self._group_id, str(error))
            return False
        return True

    def _fail(self, group: Group, lost: Iterable[TopicPartition]) -> NoReturn:
        """Raise `FencedMember`, now and at each later call, and leave the group: the query cannot continue."""
        holders = {}
        for name, member in group.members.items():
            for key in flat(decode_assignment(member.assignment, name).partitions):
                holders[tuple(key)] = member.details.instance_id or name
        found = tuple(sorted(lost))
        shown = ", ".join(f"{topic}-{p} ({holders.get((topic, p), 'assigned to nobody now')})" for topic, p in found)
        self._fenced = FencedMember(
            self._group_id,
            self._member.member_id,
            found,
            f"group {self._group_id!r} gave partitions of query {self._options.instance_id!r} to others before their "
            f"newest rows were committed: {shown}. The query had been silent for session.timeout.ms="
            f"{self._options.session_timeout_ms}, or was removed. The others go on from the committed offsets, so rows "
            "of its last micro-batch may be processed twice: look at these, then start the query with a new checkpoint "
            "and startingOffsets=group",
        )
        with self._lock, contextlib.suppress(LogError):
            self._session.submit(LeaveGroup(self._member.member_id, self._options.instance_id))
        raise self._fenced

    def _check_offset(self, before: SourceOffset, journal_id: str) -> None:
        """Raise `InvalidOption` if the checkpoint is not that of this member."""
        if before.initial:
            return
        if before.member is None:
            raise InvalidOption(
                "group.protocol",
                "the checkpoint is that of a query which read all partitions by itself, so the query cannot become a "
                "member that shares them; start it with a new checkpoint and startingOffsets=group",
            )
        if before.member.instance_id != self._options.instance_id:
            raise InvalidOption(
                "group.instance.id",
                f"the checkpoint is that of member {before.member.instance_id!r} of the group, and group.instance.id "
                f"is {self._options.instance_id!r}; give each query its own checkpoint",
            )
        if before.group is not None and before.group.journal_id != journal_id:
            raise InvalidOption(
                "group.id",
                f"the checkpoint is that of a member of another group than {self._group_id!r}; start the query with a "
                "new checkpoint",
            )
