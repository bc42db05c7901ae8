"""The sender: the threads of a producer that write its rows (Kafka's Sender).

    sender       takes ready batches of a topic and stages them in an append file
    committer    commits what was staged, in one journal entry, and settles the futures
    housekeeper  maintains the topics (`housekeeper`)

If a commit waits for its store, or for other producers, or if its rows fill a batch, the next request is staged
meanwhile. Otherwise the two would share a core, and rows would wait longer in a request that was taken early: then the
next one is taken after the commit. Further rows are collected in the meantime. Requests are committed in the order in
which they were staged, so rows of a partition keep their order. The log is used by one thread at a time.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from pyspark_log.clients.own_lock import Busy, OwnLock
from pyspark_log.clients.producer_batch import share_out
from pyspark_log.writing.destination import Destination, destination_of
from pyspark_log.writing.staging import Staging
from pyspark_log_coordinator.commit.commit import Batch, commit, detect_failures
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.retry import retry
from pyspark_log_storage import logs
from pyspark_log_storage.errors import BufferExhausted, LogError, LogMoved, OutcomeUnknown, StaleFile, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_log.clients.accumulator import Accumulator, Request
    from pyspark_log.clients.housekeeper import Housekeeper
    from pyspark_log.clients.producer_batch import ProducerBatch
    from pyspark_log.options.clients import ProducerOptions
    from pyspark_log_coordinator.log.log import Log, TopicHandle
    from pyspark_log_coordinator.model.batch import StagedFile
    from pyspark_log_storage.errors import InvalidRecord

REFRESH_SECONDS = 5.0
"""How old the knowledge of the cluster's nodes and topics may be (Kafka's metadata.max.age.ms)."""
REFRESH_SECONDS_SERVED = 300.0
"""The same if other producers commit the batches. They do not if the topic is no more as it was: that is noticed."""


class _Staged(msgspec.Struct, frozen=True):
    """A request whose rows are in append files, until when it may be retried, and its topic when it was staged."""

    request: Request
    files: Sequence[StagedFile]
    deadline: float
    topic: TopicTarget


class TopicTarget(msgspec.Struct):
    handle: TopicHandle
    destination: Destination
    looked: float
    """When it was looked up, or when `Sender.changed` tried to."""


class Sender:
    def __init__(self, log: Log, housekeeper: Housekeeper, options: ProducerOptions, accumulator: Accumulator) -> None:
        self._log = log
        self._options = options
        self._accumulator = accumulator
        self._environment = log.environment
        self._producer = log.environment.nonce()
        self._topics: dict[str, TopicTarget] = {}
        self._sequences: Counter[str] = Counter()
        """The number of the next batch (Kafka's sequence), by topic id."""
        self._log_turn = OwnLock()
        """Held by the thread that uses the log."""
        self._log_lock = self._log_turn.lock
        accumulator.lock.beside(self._log_turn)
        self._opened = -float("inf")
        """When the log was opened last."""
        self._sticky = 0
        self._housekeeper = housekeeper
        self._staged: queue.SimpleQueue[_Staged | None] = queue.SimpleQueue()
        self._turn = threading.Semaphore()
        """Taken by the sender with a request; the committer gives it back when the next one is to be staged."""
        self.threads = [
            threading.Thread(target=target, name=f"pyspark_log {name}", daemon=True)
            for name, target in (("sender", self._stage_all), ("committer", self._commit_all))
        ]
        accumulator.settlers = self.threads

    def start(self) -> None:
        """Start the threads. They end when the accumulator is closed and empty."""
        for thread in self.threads:
            thread.start()

    def destination(self, name: str) -> Destination:
        """Return where rows of a topic go; at the first look open the log, and create the topic if the options say so.

        Called by threads that send. Waits for `max.block.ms` at most. Raises `UnknownTopic`, `NoCluster`, `StoreError`,
        and `BufferExhausted` if commits take longer than that.
        """
        found = self._topics.get(name)
        if found is not None:
            return found.destination
        deadline = self._environment.monotonic() + self._options.max_block
        self._log_turn.refuse_interrupts("look a topic up")
        try:
            return self._log_turn.call(partial(self._found, name, deadline), self._options.max_block).destination
        except Busy:
            raise BufferExhausted(
                f"topic {name!r} could not be looked up within max.block.ms: commits to a slow store were under way; "
                "try again later, or raise max.block.ms"
            ) from None

    def changed(self, name: str, error: InvalidRecord) -> Destination:
        """Return where rows of a topic go if that has changed since a row was refused with `error`; else raise `error`.

        Looks at the topic unless that was done in the last `REFRESH_SECONDS`. Waits for `max.block.ms` at most.
        """
        known = self._topics.get(name)
        if known is None or self._environment.monotonic() - known.looked < REFRESH_SECONDS:
            raise error
        before = known.destination
        self._log_turn.refuse_interrupts("look a topic up")
        with contextlib.suppress(Busy):
            self._log_turn.call(partial(self._refresh, name), self._options.max_block)
        known.looked = self._environment.monotonic()  # also if that failed: not every such row must wait for a store
        now = self._topics.get(name, known).destination
        if msgspec.structs.replace(now, version=before.version) == before:
            raise error
        return now

    def abandon(self, error: LogError, timeout: float | None) -> None:
        """Fail what waits, and wait for the threads, `timeout` seconds each, unless they still write something."""
        if self._accumulator.flush(0):
            # In a thread, which no signal handler interrupts: what is dropped has to be settled.
            dropping = threading.Thread(target=self._drop, args=(error,), name="pyspark_log dropper", daemon=True)
            self.threads.append(dropping)  # callbacks of it are callbacks of the Producer
            dropping.start()
            dropping.join()
        if self._accumulator.flush(0) == 0:
            for thread in self.threads:
                thread.join(timeout)

    def _drop(self, error: LogError) -> None:
        waiting = self._accumulator.drop()
        self._settle(waiting, [partial(batch.fail, error) for batch in waiting])

    def _found(self, name: str, deadline: float) -> TopicTarget:
        """Look a topic up until a deadline. The caller holds the lock of the log."""
        left = max(0, int((deadline - self._environment.monotonic()) * 1000))
        patience = msgspec.structs.replace(self._options.retry, delivery_timeout_ms=left)
        return retry(self._environment, patience, partial(self._look_up, name))

    def _look_up(self, name: str) -> TopicTarget:
        """Open the log and return what it knows of a topic. The caller holds the lock of the log."""
        options, log = self._options, self._log
        log.open(create=False)
        log.clock.now_ms()  # before the first row gets its time
        self._opened = self._environment.monotonic()
        if options.auto_create_topics:
            handle = log.ensure_topic(name, options.num_partitions, replication_factor=options.replication_factor)
        else:
            handle = log.topic(name)
        known, destination = self._topics.get(name), self._destination(handle)
        if known is None or known.handle.topic_id != handle.topic_id:
            known = self._topics[name] = TopicTarget(handle, destination, self._opened)
        known.handle, known.destination, known.looked = handle, destination, self._opened
        return known

    def _destination(self, handle: TopicHandle) -> Destination:
        return destination_of(handle, self._options.compression, self._options.max_message_bytes, self._options.acks)

    def _stage_all(self) -> None:
        while self._turn.acquire() and (request := self._accumulator.take()) is not None:
            try:
                staged = self._stage(request)
            except BaseException as error:  # noqa: BLE001 -- the futures raise it
                self._fail(request, error)
                self._turn.release()
            else:
                self._staged.put(staged)
        self._staged.put(None)

    def _stage(self, request: Request) -> _Staged:
        options, environment = self._options, self._environment
        policy = options.retry
        deadline = environment.monotonic() + policy.delivery_timeout_ms / 1000
        topic = self._topics.get(request.topic)
        is_served = topic is not None and topic.handle.is_served
        if environment.monotonic() - self._opened >= (REFRESH_SECONDS_SERVED if is_served else REFRESH_SECONDS):
            self._refresh(request.topic)
            topic = self._topics.get(request.topic)
        if topic is None:  # it was deleted
            with self._log_lock:  # rows that were sent may wait for a commit longer than `send`
                topic = self._found(request.topic, environment.monotonic() + options.max_block)
        partitions = topic.destination.partitions  # of all rows of the request, also if more are added meanwhile
        attempts = itertools.count()

        def attempt() -> list[StagedFile]:
            if next(attempts):
                with self._log_lock:
                    self._look_up(request.topic)
                    detect_failures(topic.handle, policy)
                    topic.destination = self._destination(topic.handle)
            destination = msgspec.structs.replace(topic.destination, targets=topic.destination.targets[:partitions])
            staging = Staging(
                self._log.store_at,
                lambda _: destination,
                request.topic,
                environment=environment,
                durable=options.acks != "0",
                sticky=self._sticky,
                slower_seconds=options.request_timeout,
            )
            try:
                for batch in request.batches:
                    staging.add(batch.rows(partitions, self._sticky % partitions, self._log.clock.offset_ms))
                return staging.finish()
            except BaseException:
                staging.discard()
                raise

        self._sticky += 1
        return _Staged(request, retry(environment, policy, attempt), deadline, topic)

    def _commit_all(self) -> None:
        while (staged := self._staged.get()) is not None:
            stages_ahead = self._stages_ahead(staged)
            if stages_ahead:
                self._turn.release()
            try:
                with self._log_lock:
                    offsets = self._commit_or_stage_again(staged)
                batches = staged.request.batches
                shares = share_out(batches, offsets)
            except BaseException as error:  # noqa: BLE001 -- the futures raise it
                self._fail(staged.request, error)
            else:
                self._accumulator.release(batches)
                succeed = [partial(batch.succeed, share) for batch, share in zip(batches, shares, strict=True)]
                self._settle(batches, succeed)
                self._prepare_next(staged.topic)
            if not stages_ahead:
                self._turn.release()
        with self._log_lock:
            self._housekeeper.stop([each.handle for each in self._topics.values()])

    def _stages_ahead(self, staged: _Staged) -> bool:
        """Return whether to stage the next request while this one is committed."""
        handle = staged.topic.handle
        is_full = sum(batch.bytes for batch in staged.request.batches) >= self._options.batch_size
        return is_full or handle.waits_for_store or handle.is_served

    def _prepare_next(self, topic: TopicTarget) -> None:
        """Look where the next rows of a topic go, and maintain it. The rows that were committed are settled."""
        try:
            with self._log_lock:
                topic.destination = self._destination(topic.handle)
                self._housekeeper.committed(topic.handle)
        except Exception:
            logs.exception("maintenance of topic %(topic)r could not be started", topic=topic.handle.name)

    def _fail(self, request: Request, error: BaseException) -> None:
        if isinstance(error, (UnknownTopic, LogMoved)):
            self._topics.pop(request.topic, None)  # it may be created again, or its journal is at other nodes
        self._accumulator.release(request.batches)
        self._settle(request.batches, [partial(batch.fail, error) for batch in request.batches])

    def _settle(self, batches: Sequence[ProducerBatch], calls: Sequence[Callable[[], None]]) -> None:
        """Settle batches. A callback of theirs must not end the thread, or keep other batches from being settled."""
        for call in calls:
            try:
                call()
            except BaseException:
                logs.exception("a callback of the rows of a batch failed")
        self._accumulator.settled(batches)

    def _commit_or_stage_again(self, staged: _Staged) -> dict[int, tuple[int, int]]:
        """Commit a request; if its process was suspended for so long that its files are stale, stage it once more.

        A stale file is in no entry, and never will be. The caller holds the lock of the log.
        """
        try:
            return self._commit(staged)
        except StaleFile as error:
            if self._environment.monotonic() >= staged.deadline:
                raise
            logs.warning("staging a batch of topic %(topic)r again: %(error)s", topic=staged.request.topic, error=error)
        self._refresh(staged.request.topic)
        return self._commit(msgspec.structs.replace(self._stage(staged.request), deadline=staged.deadline))

    def _commit(self, staged: _Staged) -> dict[int, tuple[int, int]]:
        """Commit a request and return its offsets. The caller holds the lock of the log."""
        files = tuple(staged.files)
        if any(file.failed for file in files):
            self._refresh(staged.request.topic)
        handle, claim = staged.topic.handle, None
        if self._options.idempotent:
            claim = ProducerClaim(self._producer, "", "", self._sequences[handle.topic_id], expires=True)
            self._sequences[handle.topic_id] += 1
        batch = Batch(claim, files, self._options.acks, self._housekeeper.take(handle))
        left = max(1, int((staged.deadline - self._environment.monotonic()) * 1000))
        policy = msgspec.structs.replace(self._options.retry, delivery_timeout_ms=left)
        try:
            if not (handle.is_fresh or handle.is_served):
                retry(self._environment, policy, handle.refresh)
            self._housekeeper.begin(handle)
            return commit(handle, batch, policy, cleans_up=False)
        except LogError:
            raise
        except Exception as error:
            raise OutcomeUnknown(
                f"topic {handle.name!r}: the commit of a batch ended with an unexpected error "
                f"({type(error).__name__}: {error}), perhaps after the batch was in the log; look for its rows before "
                "you send them again"
            ) from error

    def _refresh(self, name: str) -> None:
        """Look which nodes can be reached, and how the topic is now. Raises what does not pass with time."""
        try:
            with self._log_lock:
                self._look_up(name)
        except LogError as error:
            if not error.retriable:  # the log is another one, or gone
                raise
            # What is known may be enough; if not, staging or the commit says what is wrong.
            message = "the nodes of topic %(topic)r could not be looked up: %(error)s"
            self._log.failures.note(("look up", name), error, message, topic=name)
        else:
            self._log.failures.end(("look up", name), "the nodes of topic %(topic)r were looked up again", topic=name)
