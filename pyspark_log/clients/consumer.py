"""The Python `Consumer`: reads partitions of topics from any program, without Spark."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import weakref
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeAlias, TypeVar, overload

from pyspark_log.clients.consumer_group import ConsumerGroup, ConsumerRebalanceListener, SubscribedTopics
from pyspark_log.clients.own_lock import Busy, Client, Closed, OwnTurn
from pyspark_log.clients.reading import AssignedPartition, Reading
from pyspark_log.clients.records import (
    ConsumerBatch,
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
    address_of,
    committed_of,
    offset_of,
    partition_of,
    partitions_of,
    seconds_of,
)
from pyspark_log.opening import own_log
from pyspark_log.options.clients import ConsumerOptions
from pyspark_log.reading.polling import Poller
from pyspark_log.reading.positions import offset_for_time
from pyspark_log.reading.rows import first_row
from pyspark_log_coordinator.membership.latch import Latch
from pyspark_log_storage import logs
from pyspark_log_storage.errors import InvalidInput, LogError, NoCluster, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Self

    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import Partition

GivenOffsets: TypeAlias = (
    "Mapping[TopicPartition, OffsetAndMetadata | int] | Mapping[tuple[str, int], OffsetAndMetadata | int]"
)
P = ParamSpec("P")
T = TypeVar("T")

_ITERATION_MS = 1000
BACKOFF_SECONDS = 0.1
"""The pause before the next try (Kafka's default of retry.backoff.ms)."""


def _alone(method: Callable[Concatenate[Consumer, P], T]) -> Callable[Concatenate[Consumer, P], T]:
    """Let a method be called by one thread at a time, and not after `close`."""

    @functools.wraps(method)
    def alone(self: Consumer, /, *args: P.args, **given: P.kwargs) -> T:
        return self._in_turn(functools.partial(method, self, *args, **given))

    return alone


class Consumer(Client):
    """Reads topics, alone or as a member of a group.

        with Consumer("/data/log", group_id="etl", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["flights"])
            while True:
                for record in consumer.poll(timeout_ms=1000):
                    print(record.offset, record.value)
                consumer.commit()

    Without a group it reads the partitions that it is given:

    >>> with Producer("data/log") as producer:
    ...     sent = producer.send("flights", b"UA 1545", key=b"EWR")
    >>> with Consumer("data/log") as consumer:
    ...     consumer.assign(consumer.partitions("flights"), "earliest")
    ...     for record in consumer.poll(timeout_ms=10_000):
    ...         print(record.offset, record.key, record.value)
    0 b'EWR' b'UA 1545'

    It returns rows below the high watermark only, those of a partition in order. Without `group.id` it stores no
    offsets: a program that continues later stores `position` with its results.

    A Consumer is for one thread at a time, except `close`; a call from a second thread raises `InvalidInput`.
    """

    def __init__(
        self, path: str | os.PathLike[str], config: Mapping[str, object] | None = None, **options: Any
    ) -> None:
        """Take the address of a cluster and options by Kafka's names, as a dict or with `_` for `.`.

        Reads nothing yet. docs/reference/options.md lists the options. Raises `InvalidOption`, `InvalidInput`.
        """
        self._address = address = address_of(path, config, "subscribe takes the topics")
        self._options = ConsumerOptions.parse(config, options)
        self._log = own_log(address, self._options.storage_options)
        self._poller = Poller(self._log, self._options.longest_pause)
        self._reading = Reading(self._poller, self._options.fetch_bytes)
        self._failures = logs.Failures()
        self._turn = OwnTurn("Consumer")
        self._closed = Latch()
        self._process = os.getpid()
        self._group: ConsumerGroup | None = None
        if self._options.group is not None:
            self._group = ConsumerGroup(
                address, self._options.group, self._options, self._reading, self._poller, self._turn
            )
            weakref.finalize(self, self._group.stop)

    @_alone
    def assign(
        self,
        partitions: Iterable[TopicPartition | tuple[str, int]],
        start: Literal["earliest", "latest"] | Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Read these partitions from now on, and no others.

        `start` is where to begin, or the offset of each partition. A partition without an offset keeps its position if
        it is assigned already, else begins at the offset that the group has committed, if there is a group, else as
        `auto.offset.reset` says. Raises `UnknownTopic`, and `InvalidInput` for a partition that does not exist.
        """
        if not (start is None or start in ("earliest", "latest") or isinstance(start, Mapping)):
            raise InvalidInput(
                f"start is {start!r}; give earliest, latest, or a dict with the offset of each partition"
            )
        if self._group is not None and self._group.is_subscribed:
            raise InvalidInput("the group assigns the partitions of this Consumer; unsubscribe first")
        self._reading.hand_back()
        handles: dict[str, TopicHandle] = {}
        assigned: dict[TopicPartition, AssignedPartition] = {}
        starts: dict[TopicPartition, int] = {}
        for key in dict.fromkeys(partition_of(each) for each in partitions):
            handle = handles.get(key.topic) or self._poller.topic(key.topic)
            handles[key.topic] = handle
            state = handle.partition(key.partition)
            known = self._reading.partitions.get(key)
            if known is None or known.handle.topic_id != handle.topic_id:
                known = AssignedPartition(handle, key.partition, self._options)
            assigned[key] = known
            if start == "earliest":
                starts[key] = state.log_start
            elif start == "latest":
                starts[key] = state.high_watermark
            elif isinstance(start, Mapping) and key in start:
                starts[key] = offset_of(start[key])
        if self._group is not None:
            self._group.read_no_longer(self._reading.partitions.keys() - assigned.keys())
            self._group.start([each for key, each in assigned.items() if key not in starts])
        # After an error nothing has changed.
        for key, each in assigned.items():
            each.handle = handles[key.topic]  # the log makes new ones when its journals have moved
            if key in starts:
                each.seek(starts[key])
        self._reading.assign(assigned)

    @_alone
    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Share these topics, or all whose whole name matches `pattern`, with the other members of the group.

        The next calls of `poll` join the group. Each partition begins at the offset that the group has committed, else
        as `auto.offset.reset` says. `listener` is called when partitions change. Topics need not exist yet. A second
        call replaces the subscription. Raises `InvalidInput` without `group.id`, `InvalidName`.
        """
        wanted = SubscribedTopics(topics, pattern)
        if not (listener is None or isinstance(listener, ConsumerRebalanceListener)):
            raise InvalidInput(f"listener is {listener!r}; give an object of a subclass of ConsumerRebalanceListener")
        group = self._the_group("subscribe")
        if not group.is_subscribed:
            self._reading.hand_back()
            group.read_no_longer(self._reading.partitions)
            self._reading.assign({})
        group.subscribe(wanted, listener)

    @_alone
    def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group if the consumer subscribes to topics."""
        self._reading.hand_back()
        if self._group is not None:
            self._group.read_no_longer(self._reading.partitions)
            self._group.unsubscribe()
        self._reading.assign({})

    def subscription(self) -> set[str]:
        """Return the topics that the consumer subscribes to."""
        return set() if self._group is None else self._group.subscription()

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        return set(self._reading.partitions)

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[ConsumerRecord]:
        """Return the next rows, at most `max_records` (`max.poll.records`), in order within each partition.

        If there are none, wait for up to `timeout_ms` milliseconds, which may be `inf`, and then return an empty list.
        A row that arrives is seen after a pause between two checks, see `fetch.max.wait.ms`. A member of a group joins
        and rejoins here, so it must call this every `max.poll.interval.ms`. If a store does not answer, that is logged,
        and this waits too.

        Raises `InvalidInput` if nothing is assigned, or for a negative time and fewer rows than 1; `UnknownTopic` for a
        topic that was deleted; `CorruptObject` and `StoreError` if no replica can be read and waiting does not help;
        `DataLoss` for an offset that is not in the log any more if `auto.offset.reset` is none; and `FencedInstance` if
        another process has this `group.instance.id`. After an error the positions are those before it.
        """
        rows_max = self._options.max_poll_records if max_records is None else max_records
        if rows_max < 1:
            raise InvalidInput(f"max_records is {max_records}; give 1 or more")
        return self._wait_for(lambda: self._reading.take_records(rows_max), timeout_ms)

    def poll_batches(self, timeout_ms: float = 0) -> list[ConsumerBatch]:
        """Return the next rows as Arrow batches, up to the one with which they have `fetch.max.bytes`.

        Waits and raises as `poll`.
        """
        return self._wait_for(self._reading.take_batches, timeout_ms)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        """Return the next row; wait until there is one, or the Consumer is closed."""
        while not self._closed.is_set():
            if (record := self._reading.next_ahead()) is not None:
                return record
            self._read_ahead(_ITERATION_MS)
        raise StopIteration

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next row; wait without blocking the event loop. Rows are read in a thread of its executor."""
        while not self._closed.is_set():
            if (record := self._reading.next_ahead()) is not None:
                return record
            reading = asyncio.ensure_future(asyncio.to_thread(self._read_ahead, 0))
            try:
                await asyncio.shield(reading)
            except asyncio.CancelledError:
                await reading  # a moment: what it reads stays for the next call
                raise
            if not self._reading.ahead:
                await asyncio.sleep(self._poller.pause())
        raise StopAsyncIteration

    @_alone
    def seek(self, partition: TopicPartition | tuple[str, int], offset: int) -> None:
        """Read a partition from `offset` next.

        If the log does not have that offset when the partition is read, `auto.offset.reset` decides.
        """
        self._reading.hand_back()
        self._of(partition).seek(offset_of(offset))

    def seek_to_beginning(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Read partitions, by default all that are assigned, from their first row."""
        self._seek_to(partitions, lambda state: state.log_start)

    def seek_to_end(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Read only rows that are new from now on, of some or all assigned partitions."""
        self._seek_to(partitions, lambda state: state.high_watermark)

    @_alone
    def position(self, partition: TopicPartition | tuple[str, int]) -> int:
        """Return the offset of the next row of a partition.

        In an iteration that is the row after the one that was returned last. Raises as `poll`.
        """
        found = self._of(partition)
        first = self._reading.next_returned(found.key)
        return found.position() if first is None else first

    @_alone
    def pause(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Return no rows of these partitions until `resume`."""
        self._reading.hand_back()
        for each in partitions:
            self._of(each).is_paused = True

    @_alone
    def resume(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Return rows of these partitions again."""
        for each in partitions:
            self._of(each).is_paused = False

    @_alone
    def caught_up(self) -> bool:
        """Return whether `poll` has returned all rows that there were when it looked last, but for paused partitions.

        False before a member has joined its group and has its partitions, and before anything is assigned.
        """
        group, reading = self._group, self._reading
        is_member = group is not None and group.is_subscribed
        is_assigned = group.is_working if is_member and group is not None else bool(reading.partitions)
        return is_assigned and reading.is_at_end

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return {key for key, each in self._reading.partitions.items() if each.is_paused}

    @_alone
    def commit(self, offsets: GivenOffsets | None = None) -> None:
        """Commit offsets to the group, and return when they are durable; by default those after the returned rows.

        `offsets` are the next rows to read, by partition: numbers or `OffsetAndMetadata`. In an iteration, the row that
        was returned last counts as processed.

        These errors say that nothing was committed: `UnknownMember` if the group has removed this member,
        `IllegalGeneration` and `RebalanceInProgress` if it is rebalancing, `FencedInstance` if another process has this
        `group.instance.id`, `RewindPending` if the offsets of the group were reset, `InvalidInput` for a partition that
        is not assigned. After a `MemberError` call `poll`, which joins again. After `StoreError` and `OutcomeUnknown`
        the offsets may be committed or not: commit again, which changes nothing if they are.
        """
        self._the_group("commit").commit(None if offsets is None else committed_of(offsets))

    @overload
    def committed(self, partitions: TopicPartition | tuple[str, int]) -> OffsetAndMetadata | None: ...

    @overload
    def committed(
        self, partitions: Iterable[TopicPartition | tuple[str, int]]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]: ...

    def committed(
        self, partitions: TopicPartition | tuple[str, int] | Iterable[TopicPartition | tuple[str, int]]
    ) -> OffsetAndMetadata | dict[TopicPartition, OffsetAndMetadata | None] | None:
        """Return what the group has committed for a partition, or a dict of it for several.

        None stands for a partition of which the group has committed nothing. Raises `UnknownTopic`.
        """
        keys = partitions_of(partitions)
        found = self._committed([keys] if isinstance(keys, TopicPartition) else keys)
        return found[keys] if isinstance(keys, TopicPartition) else found

    @_alone
    def _committed(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return self._the_group("look for committed offsets").committed(keys)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the group, the member id and the generation of this consumer."""
        return self._the_group("be a member").metadata()

    @_alone
    def topics(self) -> set[str]:
        """Return the names of all topics."""
        return self._poller.topic_names()

    @_alone
    def partitions_for_topic(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions. Raises `UnknownTopic`."""
        return set(range(len(self._poller.topic(topic).partitions)))

    def partitions(self, *topics: str) -> list[TopicPartition]:
        """Return all partitions of some topics, for `assign`. Raises `UnknownTopic`."""
        return [
            TopicPartition(topic, number) for topic in topics for number in sorted(self.partitions_for_topic(topic))
        ]

    def beginning_offsets(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return self._offsets(partitions, lambda state: state.log_start)

    def end_offsets(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the end of each partition: its high watermark, the offset of the next row that can be read."""
        return self._offsets(partitions, lambda state: state.high_watermark)

    @_alone
    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first row of each partition whose timestamp is the given one or later; None if there is none."""
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for given, ms in times_ms.items():
            key = partition_of(given)
            handle = self._poller.topic(key.topic)
            handle.partition(key.partition)  # raises if there is no such partition
            offset = offset_for_time(handle, key.partition, ms, self._options.rack)
            row = None if offset is None else first_row(handle, key.partition, offset)
            found[key] = None if row is None else OffsetAndTimestamp(*row)
        return found

    def close(self) -> None:
        """Stop: a waiting `poll` returns, iterations end, and later calls raise `InvalidInput`. For any thread.

        A member commits (with `enable.auto.commit`), calls its listener, and leaves the group unless it is static. If
        another thread uses the consumer, that thread does so at the end of its call. If that call is `poll`, it returns
        no rows then, as they could not be committed any more: whoever reads the partitions next gets them.
        """
        self._closed.set()
        self._finish_unless_in_use()

    def _finish_unless_in_use(self) -> None:
        if self._group is not None and not self._turn.is_mine():  # else the call that has the turn does it at its end
            with contextlib.suppress(Busy):
                self._turn.take(self._finish)

    def _finish(self) -> None:
        """Close the group, whose listener may use the consumer once more."""
        if self._group is None or self._process != os.getpid():
            return
        try:
            self._reading.hand_back()
            self._reading.go_back()  # the program has no rows yet of a call that ends with this
            self._group.close()
        finally:
            self._group = None

    def _repr_html_(self) -> str | None:
        """Return for notebooks where the consumer is in its partitions, as of its last look. Reads nothing.

        Without pip install jinja2 this is None, and a notebook shows what `repr` returns.
        """
        try:
            from pyspark_log.ui import notebook
        except InvalidInput:
            return None
        group = self._group
        return notebook.consumer(
            address=self._address,
            topics=sorted(self.subscription()),
            group=None if group is None else group.metadata(),
            is_closed=self._closed.is_set(),
            places=self._reading.places(),
            reset=self._options.reset,
        )

    def _in_turn(self, act: Callable[[], T]) -> T:
        """Return what `act` returns. Refuse a second thread, and everything after `close`."""
        is_first = not self._turn.is_mine()

        def checked() -> T:
            if is_first:  # a call that is in progress ends as it would
                self._refuse_if_closed()
            return act()

        if self._group is not None and self._process != os.getpid():
            raise InvalidInput("this Consumer was made before the process was forked; make one in each process")
        try:
            return self._turn.take(checked)
        except Busy:
            self._refuse_if_closed()
            raise InvalidInput("this Consumer is in use by another thread; use one Consumer for each thread") from None
        except NoCluster as error:
            raise NoCluster(f"{error}. A Consumer takes the log's address; topics are for subscribe") from error
        finally:
            if self._closed.is_set():  # looked at after the turn: `close` leaves it to whoever has the turn
                self._finish_unless_in_use()

    def _refuse_if_closed(self) -> None:
        if self._closed.is_set():
            raise Closed("this Consumer is closed; make a new one")

    def _the_group(self, what: str) -> ConsumerGroup:
        if self._group is None:
            raise InvalidInput(f"this Consumer has no group to {what}; give the option group.id")
        return self._group

    def _wait_for(self, take: Callable[[], list[T]], timeout_ms: float) -> list[T]:
        """Return what `take` returns, once that is not empty or the time is over.

        If the call ends with an error or an interrupt, or because a member of a group is closed, the rows that were
        taken are read again.
        """
        seconds, has_begun = seconds_of(timeout_ms), False

        def wait() -> list[T]:
            nonlocal has_begun
            group = self._group
            if group is not None and group.is_calling:
                raise InvalidInput("a rebalance listener cannot poll; return, and poll afterwards")
            if not self._reading.partitions and not (group is not None and group.is_subscribed):
                raise InvalidInput("no partition is assigned; call subscribe or assign first")
            self._reading.hand_back()
            self._reading.begin()
            has_begun = True
            deadline = monotonic() + seconds
            while True:
                self._reading.begin()
                pause = self._poller.pause()
                if group is not None:
                    group.poll()
                    pause = min(pause, group.pause())
                found = self._look_and_take(take)
                if found:
                    self._poller.note_rows()
                    return found
                if found is None:
                    pause = max(pause, BACKOFF_SECONDS)
                left = deadline - monotonic()
                if left <= 0 or self._closed.wait(min(pause, left)):
                    return []

        try:
            found = self._in_turn(wait)
            is_returned = self._reading.begin()  # nothing may fail from here on
        except BaseException:
            if has_begun:
                self._reading.go_back()
            raise
        return found if is_returned else []

    def _look_and_take(self, take: Callable[[], list[T]]) -> list[T] | None:
        """Return what `take` returns after a look, None if a store does not answer."""
        try:
            self._look()
            found = take()
        except LogError as error:
            if not error.retriable:
                raise
            self._reading.go_back()
            self._failures.note(None, error, "a consumer waits, and tries again: %(error)s")
            return None
        self._failures.end(None, "the stores answer a consumer again")
        return found

    def _look(self) -> None:
        """Look for new rows. A member continues without a topic that was deleted: its group assigns the rest anew."""
        try:
            if self._group is not None:
                self._group.find_missing()
            self._reading.look()
        except UnknownTopic as error:
            if self._group is None or not self._group.is_subscribed:
                raise
            self._group.topic_deleted(error.topic)

    def _read_ahead(self, timeout_ms: float) -> None:
        """Read rows for the iteration, and wait for them for some time. Do nothing if another thread has closed it."""
        with contextlib.suppress(Closed):
            self._wait_for(lambda: self._reading.take_ahead(self._options.max_poll_records), timeout_ms)

    def _of(self, partition: TopicPartition | tuple[str, int]) -> AssignedPartition:
        key = partition_of(partition)
        found = self._reading.partitions.get(key)
        if found is None:
            subscribed = self._group is not None and self._group.is_subscribed
            advice = (
                "poll first: the group assigns partitions then, perhaps this one to another member "
                "(on_partitions_assigned of a listener says when)"
                if subscribed
                else "assign it first"
            )
            raise InvalidInput(f"topic {key.topic!r}, partition {key.partition} is not assigned; {advice}")
        return found

    @_alone
    def _seek_to(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], where: Callable[[Partition], int]
    ) -> None:
        self._reading.hand_back()
        chosen = [self._of(each) for each in partitions] or list(self._reading.partitions.values())
        for handle in {each.handle.topic_id: each.handle for each in chosen}.values():
            handle.refresh()
        for each in chosen:
            each.seek(where(each.state))

    @_alone
    def _offsets(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], which: Callable[[Partition], int]
    ) -> dict[TopicPartition, int]:
        keys = [partition_of(each) for each in partitions]
        handles = {topic: self._poller.topic(topic) for topic in {key.topic for key in keys}}
        return {key: which(handles[key.topic].partition(key.partition)) for key in keys}
