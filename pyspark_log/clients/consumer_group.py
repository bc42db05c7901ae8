"""A consumer's part in its group: what it subscribes to, what it commits, and the partitions that it is assigned.

With `subscribe` the consumer is a member, and the group assigns its partitions. With `assign` it is Kafka's simple
consumer: it only stores its offsets in the group, as long as that has no members.
"""

from __future__ import annotations

import contextlib
import re
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from pyspark_log.clients.reading import AssignedPartition
from pyspark_log.clients.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from pyspark_log.opening import own_log
from pyspark_log_coordinator.group.config import NEWS_SECONDS_REMOTE
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit
from pyspark_log_coordinator.membership.group_member import GroupMember
from pyspark_log_coordinator.membership.member_thread import MemberThread
from pyspark_log_coordinator.membership.session import Session
from pyspark_log_coordinator.membership.shared_partitions import SharedPartitions
from pyspark_log_coordinator.retry import RetryPolicy, retry
from pyspark_log_storage import logs
from pyspark_log_storage.errors import (
    InvalidInput,
    LogError,
    OutcomeUnknown,
    RebalanceInProgress,
    RewindPending,
    UnknownGroup,
    UnknownTopic,
)
from pyspark_log_storage.names import check_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark_log.clients.own_lock import OwnTurn
    from pyspark_log.clients.reading import Reading
    from pyspark_log.options.clients import ConsumerOptions, GroupOptions
    from pyspark_log.reading.polling import Poller
    from pyspark_log_coordinator.group.state import Group

FIND_AGAIN_SECONDS = 5.0
"""How often a consumer looks for the new incarnation of a topic that was deleted."""

UNKNOWN = "does not exist (UNKNOWN_TOPIC_OR_PARTITION); it is read once it is created"


class ConsumerRebalanceListener:
    """What a program does when its consumer gets partitions and gives them up.

    Give an object of a subclass to `Consumer.subscribe`. The names and the meaning are those of Kafka's.

    `poll`, `unsubscribe` and `close` call the methods, in the thread that calls these (`async for`: in a thread of the
    loop's executor). They may use the consumer, but not `poll` and `unsubscribe`. If one raises an exception, the
    partitions change nevertheless, and the call in progress raises the exception afterwards.
    """

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """Begin with these partitions, in addition to those that the consumer has. There may be none.

        Positions are at the committed offsets; `seek` chooses others.
        """

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """Finish with these partitions: others get them next. `commit` still works."""

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        """Drop these partitions: others may have them already, so nothing can be committed.

        By default this calls `on_partitions_revoked`, as in Kafka.
        """
        self.on_partitions_revoked(lost)


class SubscribedTopics:
    """The topics that a consumer subscribes to: by name, or by a pattern that matches whole names."""

    def __init__(self, topics: Iterable[str], pattern: str | re.Pattern[str] | None) -> None:
        """Raises `InvalidInput` unless there is exactly one of both, `InvalidName` for an invalid name."""
        names = [topics] if isinstance(topics, str) else list(topics)
        if bool(names) == (pattern is not None):
            raise InvalidInput("give the topics to subscribe to, or a pattern; unsubscribe ends a subscription")
        for name in names:
            if not isinstance(name, str):
                raise InvalidInput(f"topic {name!r} is not text; give the names of topics")
            check_topic(name)
        try:
            self._pattern = None if pattern is None else re.compile(pattern)
            if self._pattern is not None:
                self._pattern.fullmatch("")
        except TypeError:
            raise InvalidInput(f"pattern {pattern!r} is not text; give a regular expression of text") from None
        except re.error as error:
            raise InvalidInput(f"pattern {pattern!r} is not a valid regular expression ({error}); correct it") from None
        self._names = tuple(sorted(set(names)))
        self._unseen = set(self._names)
        """Topics that have not existed at any look."""
        self._warned_of: set[str] = set()

    def names(self) -> tuple[str, ...]:
        """Return the topics as they are known; those that match the pattern are known after the first `poll`."""
        return self._names

    def refresh(self, existing: Callable[[], Iterable[str]]) -> tuple[str, ...]:
        """Return the topics; `existing` returns all that exist now."""
        if self._pattern is not None:
            self._names = tuple(sorted(name for name in existing() if self._pattern.fullmatch(name)))
        elif self._unseen:
            self._unseen -= set(existing())
        return self._names

    def newly_unknown(self) -> list[str]:
        """Return the topics that have never existed at a look, each once."""
        found = sorted(self._unseen - self._warned_of)
        self._warned_of |= self._unseen
        return found


class ConsumerGroup:
    """The group of one consumer. Used by the consumer's thread, apart from a thread of its own."""

    def __init__(
        self, path: str, group: GroupOptions, options: ConsumerOptions, reading: Reading, poller: Poller, turn: OwnTurn
    ) -> None:
        """Do no I/O yet. `turn` is the consumer's, who takes it to call anything here."""
        self._turn = turn
        self._group = group
        self._options = options
        self._reading = reading
        self._poller = poller
        log = own_log(path, options.storage_options)
        news_seconds = NEWS_SECONDS_REMOTE if log.is_remote else 0.0
        settings = msgspec.structs.replace(group.member, news_seconds=news_seconds)
        self._session = Session(log, group.group_id, settings)
        self._environment = log.environment
        self._thread = MemberThread(self._keep_alive)
        self._topics: SubscribedTopics | None = None
        self._listener: ConsumerRebalanceListener | None = None
        self._shared: SharedPartitions | None = None
        self._member: GroupMember | None = None
        self._missing: set[TopicPartition] = set()
        """Assigned partitions of topics that were deleted."""
        self._sought = self._auto_committed_at = -float("inf")
        self._auto_committed: dict[TopicPartition, tuple[int, int]] = {}
        self._rewinds = 0
        """The newest rewind that a simple consumer has followed."""
        self.is_calling = False
        """Whether a listener of the program runs."""
        self._failure: Exception | None = None
        """What a listener has raised, until the call that called it ends."""

    # Membership

    @property
    def is_subscribed(self) -> bool:
        """Return whether the group assigns the partitions."""
        return self._member is not None

    @property
    def is_working(self) -> bool:
        """Return whether the consumer has what the group has assigned to it last, which may be nothing."""
        return self._member is not None and self._member.is_working

    def subscribe(self, topics: SubscribedTopics, listener: ConsumerRebalanceListener | None) -> None:
        """Share these topics with the other members, from the next `poll` on."""
        self._topics, self._listener = topics, listener
        self._poller.is_member = True
        if self._member is None:
            self._shared = SharedPartitions(self._group.strategies, self)
            self._member = GroupMember(self._session, self._shared)
            self._thread.wake()
        else:
            self._member.rejoin()

    def subscription(self) -> set[str]:
        return set() if self._topics is None else set(self._topics.names())

    def unsubscribe(self) -> None:
        """Leave the group. Raises what the listener raises."""
        if self._member is None or self._shared is None:
            return
        if self.is_calling:
            raise InvalidInput("a rebalance listener cannot unsubscribe; do that after poll has returned")
        member, shared = self._member, self._shared
        try:
            if member.dropped or member.member_id not in self._session.group.members:
                shared.lose()
            else:
                shared.leave()
        finally:
            self._member = self._shared = self._topics = None
            self._reading.assign({})
            self._poller.is_member = False
            member.leave()
        self._raise_failure()

    def poll(self) -> None:
        """Do what is due: commits, and the next steps of the member."""
        self._auto_commit()
        if self._member is not None:
            self._member.poll()
            self._raise_failure()

    def _keep_alive(self) -> float | None:
        """Do what the thread does: stay a member."""
        member = self._member
        return None if member is None else member.stay()

    def pause(self) -> float:
        """Return after how many seconds `poll` has something to do again."""
        return self._member.pause() if self._member is not None else float("inf")

    def metadata(self) -> ConsumerGroupMetadata:
        instance_id = self._group.member.instance_id or None
        if self._member is None:
            return ConsumerGroupMetadata(self._group.group_id, -1, "", instance_id)
        return ConsumerGroupMetadata(self._group.group_id, self._member.generation, self._member.member_id, instance_id)

    @property
    def stop(self) -> Callable[[], None]:
        """What ends the thread and does nothing else. It does not refer to the group."""
        return self._thread.stop

    def close(self) -> None:
        """Commit what is left, and leave the group unless the member is static."""
        try:
            if self._member is not None:
                self.unsubscribe()
            else:
                self.read_no_longer(self._reading.partitions)
        finally:
            self.stop()

    def _warn(self, message: str, *, exc_info: BaseException | None = None, **facts: object) -> None:
        logs.warning(message, exc_info=exc_info, group=self._group.group_id, **facts)

    # Offsets

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, *, timeout_ms: int | None = None
    ) -> None:
        """Commit these offsets, or all that were consumed; return when they are durable. Raises `LogError`.

        If a store does not answer, try again for `timeout_ms` (default.api.timeout.ms): a repetition changes nothing.
        """
        given = self._consumed() if offsets is None else offsets
        if not given:
            return
        command = self._command(given)
        policy = RetryPolicy(delivery_timeout_ms=self._group.api_timeout_ms if timeout_ms is None else timeout_ms)
        try:
            retry(self._environment, policy, lambda: self._submit(command), is_retriable=_may_be_repeated)
        except RewindPending:
            self._take_up_rewinds()
            raise

    def committed(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what the group has committed for partitions. Raises `UnknownTopic`."""
        found: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(keys)
        topic_ids = {topic: self._poller.topic(topic).topic_id for topic in {key.topic for key in found}}
        group = self._read()
        for key in found:
            at = None if group is None else group.committed(topic_ids[key.topic], key.partition)
            found[key] = None if at is None else OffsetAndMetadata(at.offset, at.metadata, at.leader_epoch)
        return found

    def read_no_longer(self, keys: Iterable[TopicPartition]) -> None:
        """Commit what a simple consumer has read of partitions that it gives up, if it commits by itself."""
        if self._member is None and self._group.auto_commit_interval is not None:
            self._commit_consumed(keys)

    def start(self, partitions: Iterable[AssignedPartition]) -> None:
        """Read assigned partitions on, or from their committed offsets if they have no position or were rewound."""
        group = self._read()
        if group is None:
            return
        for each in partitions:
            if each.place[0] is None or each.is_rewound(group, self._rewinds):
                each.go_to_committed(group)
        self._rewinds = group.rewinds

    def _take_up_rewinds(self) -> None:
        """Go on where the group was reset to, as a simple consumer. A group with members is not reset."""
        if self._member is None:
            self._reading.hand_back()
            self._auto_committed = {}
            group = self._session.group
            for each in self._reading.partitions.values():
                if each.is_rewound(group, self._rewinds):
                    each.go_to_committed(group)
            self._rewinds = group.rewinds

    def _read(self) -> Group | None:
        """Return the newest state of the group, None if it does not exist."""
        if self._group.group_id not in self._poller.groups():
            return None
        return self._session.refresh()

    def _consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        consumed = self._reading.consumed()
        return {key: OffsetAndMetadata(offset, "", epoch) for key, (offset, epoch) in consumed.items()}

    def _command(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> OffsetCommit:
        """Return the commit. Raises `InvalidInput` for a partition that a member is not assigned."""
        new: dict[str, dict[int, Offset]] = {}
        for key, given in offsets.items():
            reading = self._reading.partitions.get(key)
            if reading is None and self._member is not None:
                raise InvalidInput(
                    f"topic {key.topic!r}, partition {key.partition} is not assigned to this consumer, so it cannot "
                    f"commit offset {given.offset}: another member of group {self._group.group_id!r} may have it; "
                    "nothing was committed"
                )
            handle = reading.handle if reading is not None else self._poller.topic(key.topic)
            handle.partition(key.partition)  # raises if there is no such partition
            new.setdefault(handle.topic_id, {})[key.partition] = Offset(
                given.offset, given.leader_epoch, given.metadata
            )
        return OffsetCommit(new, rewinds=self._rewinds) if self._member is None else self._member.offset_commit(new)

    def _submit(self, command: OffsetCommit) -> None:
        member = self._member
        if not command.offsets:
            return
        if member is not None:
            member.carry_out(command)
        else:
            try:
                self._session.submit(command)
            except UnknownGroup:  # it was deleted, and starts again
                self._session.refresh(create=True)
                self._session.submit(command)

    def _auto_commit(self) -> None:
        interval = self._group.auto_commit_interval
        if interval is None or monotonic() - self._auto_committed_at < interval:
            return
        self._auto_committed_at = monotonic()
        consumed = self._reading.consumed()
        if consumed != self._auto_committed and self._commit_consumed(consumed):
            self._auto_committed = consumed

    def _commit_consumed(self, partitions: Iterable[TopicPartition]) -> bool:
        """Commit what was consumed of these partitions, and return whether that is done. A failure is logged."""
        wanted = set(partitions)
        offsets = {key: each for key, each in self._consumed().items() if key in wanted}
        try:
            self.commit(offsets, timeout_ms=0)
        except LogError as error:
            self._warn("auto commit of group %(group)r failed: %(error)s", error=error)
            return False
        return True

    # What the group asks of a reader, see `shared_partitions`

    def topics(self) -> tuple[str, ...]:
        assert self._topics is not None
        names = self._topics.refresh(self._poller.topic_names)
        for name in self._topics.newly_unknown():
            self._warn("group %(group)r: topic %(topic)r %(what)s", topic=name, what=UNKNOWN)
        return names

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        found = {}
        for topic in topics:
            with contextlib.suppress(UnknownTopic):
                found[topic] = len(self._poller.topic(topic, polls=True).partitions)
        return found

    def assigned(self, added: Sequence[tuple[str, int]], group: Group) -> None:
        """Read these partitions too, from their committed offsets."""
        keys = [TopicPartition(*each) for each in added]
        self._auto_committed = {}  # the group may have lost it since
        try:
            for key in keys:
                self._read_too(key, group)
            if self._listener is not None:
                self._call(partial(self._listener.on_partitions_assigned, keys))
        except BaseException:
            self._drop(keys)  # they are assigned again
            raise

    def revoked(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Commit, and read these partitions no longer."""
        keys = [TopicPartition(*each) for each in partitions]
        try:
            if self._group.auto_commit_interval is not None:
                self._commit_consumed(keys)
            if self._listener is not None:
                self._call(partial(self._listener.on_partitions_revoked, keys))
        finally:
            self._drop(keys)

    def lost(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Read these partitions no longer."""
        keys = [TopicPartition(*each) for each in partitions]
        try:
            if self._listener is not None:
                self._call(partial(self._listener.on_partitions_lost, keys))
        finally:
            self._drop(keys)

    def topic_deleted(self, topic: str) -> None:
        """Read a topic no longer until it exists again, or the group assigns its partitions anew."""
        keys = [key for key in self._reading.partitions if key.topic == topic]
        self._warn("topic %(topic)r was deleted; group %(group)r reads it no longer", topic=topic)
        for key in keys:
            self._reading.remove(key)
        self._missing |= set(keys)

    def find_missing(self) -> None:
        """Look now and then for topics that were deleted: they may have been created again. Raises `StoreError`."""
        if self._missing and monotonic() - self._sought >= FIND_AGAIN_SECONDS:
            self._sought = monotonic()
            for key in sorted(self._missing):
                self._read_too(key, self._session.group)

    def _read_too(self, key: TopicPartition, group: Group) -> None:
        self._missing.add(key)
        with contextlib.suppress(UnknownTopic):
            handle = self._poller.topic(key.topic)
            if key.partition < len(handle.partitions):
                added = AssignedPartition(handle, key.partition, self._options)
                added.go_to_committed(group)
                self._reading.add(key, added)
                self._missing.discard(key)

    def _drop(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            self._reading.remove(key)
            self._missing.discard(key)

    def _call(self, call: Callable[[], object]) -> None:
        """Call a listener. The member continues if that fails; the program hears of it when the rebalance is done."""
        was_calling, self.is_calling = self.is_calling, True
        try:
            with self._turn.calling_out():
                call()
        except Exception as error:
            if self._failure is not None:
                logs.warning("a rebalance listener failed again", exc_info=error, group=self._group.group_id)
            self._failure = self._failure or error
        finally:
            self.is_calling = was_calling

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def _may_be_repeated(error: LogError) -> bool:
    """Return whether the same commit may succeed later. A rebalance ends only if the program polls."""
    return (error.retriable or isinstance(error, OutcomeUnknown)) and not isinstance(error, RebalanceInProgress)
