"""The Python clients of a simulated world: Producers and Consumers, with all their threads.

What they take from `threading`, `queue` and `time` comes from the simulated world (`patches`). So their threads are
tasks of its clock, and they crash, sleep and lose answers as all processes do.
"""

from __future__ import annotations

import concurrent.futures._base
import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa

from pyspark_log import Consumer, Producer
from pyspark_log.clients import (
    accumulator,
    consumer,
    consumer_group,
    housekeeper,
    own_lock,
    producer,
    producer_batch,
    reading,
    sender,
)
from pyspark_log.clients.consumer_group import ConsumerRebalanceListener
from pyspark_log.writing import destination
from pyspark_log_coordinator.commit.commit import _Attempt
from pyspark_log_coordinator.membership import latch, member_thread, session
from pyspark_log_storage import logs
from pyspark_log_storage.errors import (
    BatchMismatch,
    BufferExhausted,
    DataLoss,
    GroupError,
    InvalidInput,
    LogError,
    NoCluster,
    OutcomeUnknown,
    UnknownTopic,
)
from tests.simulator import actors, compacted, groups, readers
from tests.simulator.client_rules import CLIENTS, HAND, Place, Positions
from tests.simulator.groups import group_of
from tests.simulator.invariants import Row, require, rows_of
from tests.simulator.threads import Threads
from tests.simulator.world import BEGIN_MS, TOPIC, Process, World

if TYPE_CHECKING:
    from concurrent.futures import Future

    from pyspark_log.clients.records import ConsumerRecord, RecordMetadata, TopicPartition

_CLOSES, _DIES = 0.03, 0.01
"""How often a client is closed, or its process is killed, after each thing that it does."""
_COMMITS, _SEEKS, _NAPS = 0.4, 0.1, 0.02
_UNKNOWN = 0.1
"""How often the outcome of a Producer's commit stays unknown."""
_MORE_SECONDS, _LAST_SECONDS = 1.0, 60.0
"""How long Consumers read on when nothing goes wrong any more, and in which time new ones must have read all."""


@contextlib.contextmanager
def patches(world: World) -> Iterator[None]:
    """Let the clients take from the simulated world what they take from their process."""
    threads = Threads(world)

    def now() -> float:
        return world.process.environment.now_ms() / 1000

    def own_log(address: str, options: object = None) -> Any:
        return world.process.own_log()

    def own_stores_at(address: str, options: object = None) -> Any:
        return world.process.own_log().store_at

    def unexpected(message: str, **facts: object) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, Exception):  # else the process has crashed
            world.clock.fail(error)

    with contextlib.ExitStack() as stack:
        for module, name, value in (
            *((module, "threading", threads) for module in (accumulator, housekeeper, own_lock, producer)),
            *((module, "threading", threads) for module in (sender, member_thread, session)),
            (own_lock, "OwnCondition", threads.Condition),
            (concurrent.futures._base, "threading", threads),
            *((module, "queue", threads) for module in (housekeeper, latch, sender)),
            (accumulator, "SimpleQueue", threads.SimpleQueue),
            *((module, "monotonic", lambda: world.clock.now) for module in (accumulator, consumer, consumer_group)),
            *((module, "monotonic", lambda: world.clock.now) for module in (housekeeper, reading)),
            (producer_batch, "time", now),
            (destination, "time", SimpleNamespace(time_ns=lambda: int(now() * 1e9))),
            *((module, "own_log", own_log) for module in (producer, consumer, consumer_group, housekeeper)),
            (housekeeper, "own_stores_at", own_stores_at),
            # Nothing is closed by the collection of garbage, or at the end of the real process.
            (producer, "_refuse_after_the_end", lambda: None),
            (producer, "_add", lambda _: None),
            (producer, "_finish_elsewhere", lambda *_: None),
            (consumer, "weakref", SimpleNamespace(finalize=lambda *_: None)),
            (consumer_group, "FIND_AGAIN_SECONDS", 0.1),
            (housekeeper, "CLEAN_UP_SECONDS", 0.5),
            (_Attempt, "_commit", _noted(world, _Attempt._commit)),
            (sender, "REFRESH_SECONDS", 0.5),
            (member_thread, "AGAIN_SECONDS", 0.05),
            (logs, "exception", unexpected),
            (logs, "_log", functools.partial(_logged, world)),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        yield


def _noted(world: World, commit: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return an attempt to commit whose outcome sometimes stays unknown if it is a Producer's; count repetitions.

    A process learns nothing of an entry if its store does not answer for longer than the journal's patience, before or
    after it got the entry. That is longer than a world is.
    """
    unknown: set[tuple[str, int]] = set()

    def some_unknown(attempt: Any) -> Any:
        fate = world.process.chance.random() / _UNKNOWN if world.process.state.weather.lost_answer else 1.0
        if fate < 0.5:
            raise OutcomeUnknown("the store did not answer")
        outcome = commit(attempt)
        if fate < 1.0:
            raise OutcomeUnknown("the answer was lost")
        return outcome

    def noted(attempt: Any) -> Any:
        claim = attempt._batch.claim
        if all(attempt._handle.log is not each for each in world.process.own):
            return commit(attempt)
        if claim is None:
            return some_unknown(attempt)
        key = claim.producer, claim.batch_id
        assert world.rows is not None
        known = world.rows.states[-1].producers.get(key[0])
        was_there = known is not None and known.batch_id == key[1]
        try:
            outcome = some_unknown(attempt)
        except OutcomeUnknown:
            unknown.add(key)
            raise
        except LogError:
            if key in unknown:
                world.counts["refusals of a repetition"] += 1
            raise
        if key in unknown and was_there:
            world.counts["repetitions that find their batch"] += 1
        return outcome

    return noted


def _logged(world: World, level: int, message: str, *others: object) -> None:
    """Count what the clients say that they do after a failure."""
    if world.process.own and "It was read from node" in message:
        world.counts["reads of a Consumer from a second node"] += 1


def start(world: World) -> None:
    """Begin the clients of a world that has some."""
    settings = world.settings.clients
    if settings is None:
        return
    for number in range(settings.producers):
        actors.supervised(world, f"producer {number}", send_rows)
    for number in range(settings.subscribed):
        actors.supervised(world, f"consumer {number}", functools.partial(read_rows, group=CLIENTS))
    for number in range(settings.assigned):
        read = functools.partial(read_rows, group=f"{HAND}{number}")
        actors.supervised(world, f"reader by hand {number}", read)
    if settings.rewinds:
        actors.supervised(world, "rewinder of Consumers", functools.partial(groups.rewinder, of=(CLIENTS, HAND)))


class _Sending:
    """A Producer, and what became of the rows that it was given."""

    def __init__(self, process: Process) -> None:
        chance, settings = process.chance, process.world.settings
        self._process = process
        self._acks = chance.choice(settings.acks)
        self._number = 0
        self._errors: list[LogError] = []
        self._open: dict[bytes, Future[RecordMetadata]] = {}
        self.unsettled: set[bytes] = set()
        self._is_closed = False
        self.producer = Producer(
            readers.PATH,
            acks=self._acks,
            enable_idempotence=chance.random() < 0.75,
            linger_ms=chance.choice([0, 1, 20]),
            batch_size=chance.choice([100, 500, 10**6]),
            buffer_memory=chance.choice([1_000, 10**6]),
            max_block_ms=300,
            delivery_timeout_ms=chance.choice([50, 1_000, 5_000]),
            retry_backoff_ms=5,
            broker_session_timeout_ms=settings.nodes.session_timeout_ms,
            auto_create_topics_enable=False,
        )

    def act(self) -> None:
        """Do one of the things that a program does with a Producer."""
        chance = self._process.chance
        match chance.randrange(8):
            case 0 | 1 | 2:
                for _ in range(chance.choice([1, 1, 4])):
                    self._send_one()
            case 3 | 4 | 5 | 6:
                self._send_arrow()
            case 7:
                self.flush(chance.choice([None, None, 0.0, 0.05]))

    def excuse(self) -> None:
        """Go on after errors of rows that faults explain."""
        errors, self._errors = self._errors, []
        for each in errors:
            was_cut = isinstance(each, BatchMismatch) and self._acks != "all"  # `SentRows.failed` holds that it may be
            if not (was_cut or (self._is_closed and isinstance(each, InvalidInput))):
                self._process.world.excused(each)

    def close(self, seconds: float | None) -> None:
        """Close the Producer; without a limit, hold that every row is settled."""
        self._is_closed = True
        self.producer.close(seconds)
        if seconds is None:
            self.hold_settled(set(self.unsettled))
        self.excuse()

    def flush(self, seconds: float | None) -> None:
        """Flush, and hold that every row that was sent is settled then."""
        before = set(self.unsettled)
        left = self.producer.flush(seconds)
        if left == 0:
            self.hold_settled(before)

    def hold_settled(self, names: set[bytes]) -> None:
        """Hold that rows are settled, and that their futures say so."""
        require(not names & self.unsettled, f"{len(names & self.unsettled)} rows are not settled after flush")
        for name in [each for each in self._open if each not in self.unsettled]:
            require(self._open.pop(name).done(), f"the future of {name!r} is not done, and its callback was called")

    def _rows(self, count: int) -> list[tuple[bytes, int | None, Row]]:
        """Return new rows, with their names and the partitions that are given."""
        process, world, chance = self._process, self._process.world, self._process.chance
        found = []
        for _ in range(count):
            p = chance.choice([None, chance.randrange(world.settings.partitions)])
            name = b"%s/%d/0/0" % (process.name.encode(), self._number)
            self._number += 1
            now = BEGIN_MS + int(world.clock.now * 1000) - chance.randint(0, 50)
            (row,) = rows_of(compacted.record_of(world, world.settings.config, [name], [now * 1000]))
            if world.compaction is None and chance.random() < 0.5:
                row = row._replace(key=b"key %d" % chance.randrange(4))
            found.append((name, p, row))
        return found

    def _add(self, rows: list[tuple[bytes, int | None, Row]], *, together: bool) -> None:
        names = [(name, p) for name, p, _ in rows]
        self._process.world.sent.add(names, self._process.name, self._acks, together=together)
        self.unsettled |= {name for name, _ in names}

    def _send_one(self) -> None:
        ((name, p, row),) = rows = self._rows(1)
        self._add(rows, together=False)
        headers = list(row.headers) or None
        call = functools.partial(self._settled, name)
        with self._all_refused([name]):
            sent = self.producer.send(TOPIC, row.value, row.key, headers, p, row.time // 1000, on_delivery=call)
        if self._process.chance.random() < 0.5:
            sent.done()  # it becomes a real future
            self._open[name] = sent

    def _send_arrow(self) -> None:
        rows = self._rows(self._process.chance.randint(1, 4))
        self._add(rows, together=True)
        names = [name for name, _, _ in rows]
        of_rows = [row for _, _, row in rows]
        batch = pa.record_batch(
            {
                "key": pa.array([row.key for row in of_rows], pa.binary()),
                "value": pa.array([row.value for row in of_rows], pa.binary()),
                "timestamp": pa.array([row.time for row in of_rows], pa.timestamp("us", "UTC")),
                "partition": pa.array([p for _, p, _ in rows], pa.int32()),
                "headers": compacted.headers_of([[*row.headers] or None for row in of_rows]),
            }
        )
        with self._all_refused(names):
            future = self.producer.send_batch(TOPIC, batch)
        future.add_done_callback(lambda done: self._settled_arrow(names, done))

    @contextlib.contextmanager
    def _all_refused(self, names: list[bytes]) -> Iterator[None]:
        """Note that rows were never sent, if a call fails that has not taken them."""
        try:
            yield
        except LogError as error:
            for name in names:
                self.unsettled.discard(name)
                self._process.world.sent.failed(name, error)
            raise

    def _settled(self, name: bytes, error: BaseException | None, metadata: RecordMetadata | None) -> None:
        """Take in what became of a row."""
        process = self._process
        if not process.state.alive:
            return
        world = process.world
        try:
            require(name in self.unsettled, f"{name!r} is settled twice")
            self.unsettled.discard(name)
            if error is not None:
                world.sent.failed(name, error)
            else:
                assert metadata is not None
                world.sent.acknowledged(name, metadata.partition, metadata.offset, functools.partial(_committed, world))
        except AssertionError as found:
            world.clock.fail(found)
        if isinstance(error, LogError):
            self._errors.append(error)

    def _settled_arrow(self, names: list[bytes], done: Future[Any]) -> None:
        error = done.exception()
        world = self._process.world
        if error is not None:
            for name in names:
                self._settled(name, error, None)
            return
        offsets = done.result().offsets
        at = {p: start for p, (start, _) in offsets.items()}
        for name in names:
            place = world.sent.places.get(name)
            p = -1 if place is None else place.partition
            self._settled(name, None, producer_batch.RecordMetadata(TOPIC, p, at.get(p, -1), 0))
            if p in at:
                at[p] += 1


def _committed(world: World, place: Place) -> bool:
    """Return whether a row is in the log below the HW; an unclean election may have cut it."""
    assert world.rows is not None
    if world.rows.unclean:
        return True
    rows, partition = world.rows.rows[place.partition], world.rows.states[-1].partitions[place.partition]
    return place.offset < partition.high_watermark and rows[place.offset].name == place.name


def send_rows(process: Process) -> None:
    """Send rows until the Producer is closed or dies."""
    world, chance = process.world, process.chance
    sending = _Sending(process)
    while world.busy:
        before = 0 if world.rows is None else world.rows.number
        try:
            sending.act()
        except (NoCluster, UnknownTopic):
            require(before == 0, "the topic is said not to be there")
        except BufferExhausted:
            world.counts["BufferExhausted"] += 1
        except LogError as error:
            world.excused(error)
        sending.excuse()
        actors.may_die(process, _DIES)
        if chance.random() < _CLOSES:
            break
        process.wait(0.005)
    sending.close(chance.choice([None, None, 0.05]))
    world.counts["Producers closed"] += 1


class _Reader(ConsumerRebalanceListener):
    """A Consumer, and what it must return next."""

    def __init__(self, process: Process, group: str) -> None:
        chance, world = process.chance, process.world
        self._process, self._group = process, group
        self.is_member = group == CLIENTS
        self._next: dict[int, int] = {}
        """The next row of each partition that is assigned."""
        self._rewinds: dict[int, dict[int, int]] = {}
        """To where each rewind has set a partition, by its number."""
        self._followed: dict[int, int] = {}
        self._noted = 0
        """Up to which entry of the group."""
        self._since = (0, 0)
        """The newest entries of the group before the last two polls."""
        times = groups.times_of(world)
        self.session_ms = times.session_ms
        client_id = process.name.replace(" ", "-").replace(".", "-")
        self._positions = world.positions.setdefault(client_id if self.is_member else group, Positions())
        self.reset = "earliest" if self.is_member else chance.choice(["earliest", "latest", "none"])
        self.consumer = Consumer(
            readers.PATH,
            group_id=group,
            client_id=client_id,
            auto_offset_reset=self.reset,
            max_poll_records=chance.choice([1, 3, 50]),
            max_partition_fetch_bytes=chance.choice([1, 300, 10**6]),
            fetch_max_bytes=chance.choice([1, 500]),
            fetch_max_wait_ms=20,
            session_timeout_ms=self.session_ms,
            heartbeat_interval_ms=times.heartbeat_ms,
            max_poll_interval_ms=times.poll_ms,
            default_api_timeout_ms=500,
            enable_auto_commit=chance.random() < 0.3,
            auto_commit_interval_ms=50,
            partition_assignment_strategy=chance.choice(["range,cooperative-sticky", "cooperative-sticky,range"]),
        )

    def begin(self) -> None:
        """Subscribe, or take all partitions by hand."""
        if self.is_member:
            self.consumer.subscribe([TOPIC], listener=self)
            return
        start = self._process.chance.choice(["earliest", "latest"] if self.reset == "none" else [None, "earliest"])
        since = self._history_number()
        self.consumer.assign(self.consumer.partitions(TOPIC), start)
        for each in sorted(self.consumer.assignment()):
            self._began(each, self.consumer.position(each), since if start is None else None)

    def act(self) -> None:
        """Poll, and then now and then commit, or seek."""
        chance = self._process.chance
        self.poll(chance.choice([0, 0, 20]))
        if chance.random() < _COMMITS:
            self._commit()
        if self._next and chance.random() < _SEEKS:
            self._seek(chance.choice(sorted(self._next)))

    def poll(self, timeout_ms: float) -> None:
        """Poll, and hold that the rows are the next ones."""
        world, chance = self._process.world, self._process.chance
        rows: list[tuple[int, int, Row]] = []
        self._since = (self._since[1], self._history_number())
        try:
            if chance.random() < 0.5:
                rows = [_row(world, each) for each in self.consumer.poll(timeout_ms)]
            else:
                for batch in self.consumer.poll_batches(timeout_ms):
                    count = batch.rows.num_rows
                    offsets = range(batch.offset, batch.offset + count) if batch.offsets is None else batch.offsets
                    numbers = offsets if isinstance(offsets, range) else offsets.to_pylist()
                    rows += [(batch.partition, *each) for each in zip(numbers, rows_of(batch.rows), strict=True)]
        except DataLoss:
            require(self.reset == "none", "rows are said to be lost, and auto.offset.reset says what to do")
            require(self._has_lost(), f"rows are said to be lost; none are: {self._next}")
            self.consumer.seek_to_beginning()
            self._next.clear()
        self._note_rewinds()
        for p, offset, row in rows:
            readers.hold_read(world, p, offset, row)
            self._goes_on(p, offset)
            self._next[p] = offset + 1
            world.counts["rows of a Consumer"] += 1
        self._look_at_positions()

    def is_at_end(self) -> bool:
        """Return whether all partitions are read up to the HW."""
        world = self._process.world
        assert world.rows is not None
        ends = {p: each.high_watermark for p, each in enumerate(world.rows.states[-1].partitions)}
        return all(ends[p] == at for p, at in self._next.items())

    @property
    def partitions(self) -> set[int]:
        """The partitions that it reads."""
        return set(self._next)

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        for each in assigned:
            self._positions.had[each.partition] = set()
            at = self._began(each, self.consumer.position(each), self._seen_since())
            self._positions.begun[each.partition] = at

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        for each in revoked:
            self._next.pop(each.partition, None)

    def _seen_since(self) -> int:
        """Return since when the assignment may have been seen: the last two polls, or the start of its generation.

        If the stores did not answer, it is carried out later. A rewind meanwhile is followed next.
        """
        history, since = group_of(self._process.world, self._group), self._since[0]
        while history is not None and 0 < since < len(history.states):
            if history.states[since - 1].generation != history.states[since].generation:
                break
            since -= 1
        return since

    def _history_number(self) -> int:
        history = group_of(self._process.world, self._group)
        return 0 if history is None else history.number

    def _began(self, key: TopicPartition, at: int, since: int | None) -> int:
        """Hold that a partition begins at a committed offset, one since entry `since`, or as the options say."""
        world, p = self._process.world, key.partition
        assert world.rows is not None
        partition = world.rows.states[-1].partitions[p]
        history = group_of(world, self._group)
        topic_id = world.rows.topic_id
        states = [] if since is None or history is None else history.states[since:]
        committed = [each.committed(topic_id, p) for each in states]
        offsets = {each.offset for each in committed if each is not None}
        is_free = not states or None in committed or any(each < partition.log_start for each in offsets)
        is_right = at in offsets or is_free or world.rows.unclean
        require(is_right, f"partition {p} begins at {at}, and its group has committed {offsets}")
        require(at <= partition.high_watermark or world.rows.unclean, f"partition {p} begins at {at}, after the HW")
        self._positions.add(p, at)
        self._next[p] = at
        self._note_rewinds()
        # It may have seen the oldest of these offsets, and then follows a later rewind to the same row next. Or it
        # began after an offset that had expired, and follows the rewind from there.
        seen = [each for each in committed if each is not None]
        begun = [each.rewind for each in seen if each.offset == at or each.offset < partition.log_start]
        known = max((n for n, to in self._rewinds.get(p, {}).items() if to == at), default=0)
        self._followed[p] = min(begun, default=known)
        return at

    def _goes_on(self, p: int, offset: int) -> None:
        """Hold that `offset` is the next one of a partition, except for rows that are gone."""
        world = self._process.world
        at = self._next.get(p, offset)
        assert world.rows is not None
        if world.rows.unclean:
            return
        is_expired = at < world.rows.states[-1].partitions[p].log_start
        left = [] if is_expired and self.reset == "latest" else world.rows_left(p, at, offset)
        if (offset < at or left) and not self._follows_rewind(p, offset):
            require(offset >= at, f"partition {p}: offset {offset} comes again, after {at}")
            require(not left, f"partition {p}: {offset} comes after {at}, without {left}")

    def _note_rewinds(self) -> None:
        """Note to where the group was rewound: its Consumers go there."""
        world = self._process.world
        history = group_of(world, self._group)
        topic_id = "" if world.rows is None else world.rows.topic_id
        for state in [] if history is None else history.states[self._noted :]:
            for p in range(world.settings.partitions):
                known = state.committed(topic_id, p)
                if known is not None and known.rewind:
                    self._rewinds.setdefault(p, {}).setdefault(known.rewind, known.offset)
        self._noted = self._history_number()

    def _follows_rewind(self, p: int, offset: int) -> bool:
        """Return whether a partition goes on where a newer rewind set it than the last that it followed.

        That may have expired: then it goes on as `auto.offset.reset` says.
        """
        world = self._process.world
        assert world.rows is not None
        begin = world.rows.states[-1].partitions[p].log_start
        newer = {n: to for n, to in self._rewinds.get(p, {}).items() if n > self._followed.get(p, 0) and to <= offset}
        right = [
            n
            for n, to in newer.items()
            if (to < begin and self.reset == "latest") or not world.rows_left(p, to, offset)
        ]
        if not right:
            return False
        self._followed[p] = min(right)  # a later one may begin at the same row
        self._positions.begun[p] = min(self._positions.begun.get(p, 0), offset)
        self._positions.add(p, offset)
        self._process.world.counts["rewinds followed by Consumers"] += 1
        return True

    def _look_at_positions(self) -> None:
        """Hold that the Consumer has left out nothing, and note where it is."""
        for each in sorted(self.consumer.assignment()):
            try:
                at = self.consumer.position(each)
            except DataLoss:
                require(self.reset == "none" and self._has_lost(), f"rows are said to be lost; none are: {self._next}")
                continue
            self._goes_on(each.partition, at)
            self._positions.add(each.partition, at)
            self._next[each.partition] = at

    def _has_lost(self) -> bool:
        world = self._process.world
        assert world.rows is not None
        self._note_rewinds()
        partitions = world.rows.states[-1].partitions
        places = [*self._next.items(), *((p, to) for p, all_ in self._rewinds.items() for to in all_.values())]
        return world.rows.unclean or any(at < partitions[p].log_start for p, at in places)

    def _commit(self) -> None:
        """Commit where it is, and hold that the group has it afterwards."""
        world, chance = self._process.world, self._process.chance
        history, before = group_of(world, self._group), self._history_number()
        given: dict[TopicPartition, int] | None = None
        wanted = {
            each: self._next[each.partition] for each in self.consumer.assignment() if each.partition in self._next
        }
        if wanted and chance.random() < 0.5:
            chosen = chance.choice(sorted(wanted))
            given = wanted = {chosen: wanted[chosen]}
        self.consumer.commit(given)
        world.counts["commits that returned"] += 1
        history = history or group_of(world, self._group)
        self._hold_has(wanted, before)

    def _hold_has(self, offsets: dict[TopicPartition, int], since: int) -> None:
        """Hold that the group has offsets since an entry."""
        world = self._process.world
        if not offsets:
            return
        assert world.rows is not None
        history = group_of(world, self._group)
        topic_id = world.rows.topic_id
        states = [] if history is None else history.states[since:]
        for key, offset in offsets.items():
            found = [each.committed(topic_id, key.partition) for each in states]
            is_there = any(each is not None and each.offset == offset for each in found)
            require(is_there, f"{key}: the commit of {offset} is acknowledged, and the group does not have it")

    def _seek(self, p: int) -> None:
        """Go back to rows that it has read, or, if nobody else counts on it, anywhere."""
        world, chance = self._process.world, self._process.chance
        key = next(each for each in self.consumer.assignment() if each.partition == p)
        kind = chance.choice(["back", "back", "beginning", "end", "newest"])
        if self.is_member or kind == "back":
            low = self._positions.begun.get(p, 0) if self.is_member else 0
            at = chance.randint(min(low, self._next[p]), self._next[p])
            self.consumer.seek(key, at)
            self._positions.add(p, at)
        elif kind == "newest":  # the program may know it from a Producer
            assert world.rows is not None
            at = world.rows.states[-1].partitions[p].high_watermark
            self.consumer.seek(key, at)
        elif kind == "beginning":
            self.consumer.seek_to_beginning(key)
            at = self.consumer.position(key)
        else:
            self.consumer.seek_to_end(key)
            at = self.consumer.position(key)
        self._positions.add(p, at)
        self._next[p] = at
        world.counts["seeks"] += 1


def _row(world: World, record: ConsumerRecord) -> tuple[int, int, Row]:
    """Return a record as a row; its time is in milliseconds, so the row's own is taken if it is the same."""
    assert world.rows is not None
    rows = world.rows.rows[record.partition]
    time = record.timestamp * 1000
    known = [rows[record.offset]] if record.offset < len(rows) else []
    known += world.rows.former.get((record.partition, record.offset), ())
    time = next((each.time for each in known if each.time // 1000 == record.timestamp), time)
    headers = tuple((name, value or b"") for name, value in record.headers)
    return record.partition, record.offset, Row(record.value, time, record.key, headers)


def read_rows(process: Process, group: str) -> None:
    """Read rows until the Consumer is closed or dies; when nothing goes wrong any more, up to the end."""
    world, chance = process.world, process.chance
    reader = _Reader(process, group)
    is_configured = has_begun = False
    end = None
    while end is None or (world.clock.now < end and not (reader.partitions and reader.is_at_end())):
        if end is None and not world.busy:
            end = world.clock.now + _MORE_SECONDS
        before = 0 if world.rows is None else world.rows.number
        try:
            if not is_configured:
                process.open(create=True)
                groups.accept_short_sessions(process.log.group(group, create=True))
                is_configured = True
            if not has_begun:
                reader.begin()
                has_begun = True
            reader.act()
        except (NoCluster, UnknownTopic):
            require(before == 0, "the topic is said not to be there")
        except GroupError as error:
            world.counts[f"{type(error).__name__} of a Consumer"] += 1
        except LogError as error:
            world.excused(error)
        actors.may_die(process, _DIES)
        if chance.random() < _CLOSES and end is None:
            break
        process.wait(reader.session_ms / 1000 if chance.random() < _NAPS else 0.02)
    with contextlib.suppress(GroupError):
        try:
            reader.consumer.close()
        except LogError as error:
            world.excused(error)
    world.counts["Consumers closed"] += 1


def finish(world: World, process: Process) -> None:
    """Hold that new Consumers of each group read all that is left."""
    for group in sorted({each.states[-1].group_id for each in world.groups.values()}):
        if not group.startswith((CLIENTS, HAND)):
            continue
        # Those before may have ended too early for that.
        groups.accept_short_sessions(process.log.group(group, create=True))
        reader = _Reader(process, group)
        reader.begin()
        end = world.clock.now + _LAST_SECONDS
        while not (len(reader.partitions) == world.settings.partitions and reader.is_at_end()):
            require(world.clock.now < end, f"a Consumer of group {group} does not read all that is left")
            reader.poll(20)
            process.wait(0.02)
        reader.consumer.commit()
        reader.consumer.close()
