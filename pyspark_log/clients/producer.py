"""The Python `Producer`: sends rows to topics from any program, without Spark."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from pyspark_log.clients.accumulator import Accumulator
from pyspark_log.clients.housekeeper import Housekeeper
from pyspark_log.clients.own_lock import Client
from pyspark_log.clients.producer_batch import ArrowBatch
from pyspark_log.clients.records import address_of, timeout_of
from pyspark_log.clients.row_input import arrow_rows, checked_row, lasting
from pyspark_log.clients.sender import Sender
from pyspark_log.opening import canonical, own_log
from pyspark_log.options.clients import ProducerOptions
from pyspark_log_storage.errors import InvalidInput, InvalidRecord

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    import pyarrow as pa

    from pyspark_log.clients.producer_batch import OnDelivery
    from pyspark_log.clients.records import BatchMetadata, RecordMetadata
    from pyspark_log.clients.row_input import GivenHeaders, Text


class Producer(Client):
    """Sends rows to topics.

    It creates topics, but no log: `pyspark-log topics create flights --path data/log` does.

    >>> with Producer("data/log") as producer:
    ...     sent = producer.send("flights", b"UA 1545", key=b"EWR")
    >>> sent.result().offset
    0

    A thread gathers rows into batches (`linger.ms`, `batch.size`), and each batch of a topic becomes one journal entry.
    Rows of a partition are in the log in the order in which one thread sent them.

    All methods may be called by any number of threads. A process that is forked must make its own Producer.
    """

    def __init__(
        self, path: str | os.PathLike[str], config: Mapping[str, object] | None = None, **options: Any
    ) -> None:
        """Take the address of a cluster and options by Kafka's names, as a dict or with `_` for `.`: `linger_ms=20`.

        Reads and writes nothing yet. docs/reference/options.md lists the options.

        Raises `InvalidOption`, `InvalidInput`.
        """
        _refuse_after_the_end()
        given = address_of(path, config, "send takes the topic")
        self._options = ProducerOptions.parse(config, options)
        address = canonical(given)
        stores = self._options.storage_options
        log = own_log(address, stores)
        self._accumulator = Accumulator(self._options)
        self._sender = Sender(log, Housekeeper(address, log.environment, stores), self._options, self._accumulator)
        self._destination = self._sender.destination
        self._refused = ""
        """Why nothing can be sent any more."""
        self._finalizer = weakref.finalize(self, _finish_elsewhere, os.getpid(), self._accumulator, self._sender)
        self._finalizer.atexit = False  # `_close_at_exit` does it
        _add(self)
        self._sender.start()

    def send(  # noqa: PLR0913 -- each is a part of a row
        self,
        topic: str,
        value: Text | None = None,
        key: Text | None = None,
        headers: GivenHeaders | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        *,
        on_delivery: OnDelivery | None = None,
    ) -> Future[RecordMetadata]:
        """Send a row, and return the future of its place in the log.

        Text is encoded in UTF-8; a value of None is a tombstone. The partition is the given one, else Kafka's of the
        key, else the same for all rows without a key in a batch. `timestamp_ms` is in milliseconds since 1970 (default:
        now). `on_delivery(error, metadata)` is called by the Producer's thread, so it should return soon. It cannot
        flush, and must not wait for a future.

        Waits for up to `max.block.ms` if the buffer is full, and when a topic is used for the first time. Raises
        `InvalidRecord` for a row that cannot be written, `BufferExhausted`, `InvalidInput` after `close`, and for the
        first row of a topic also `UnknownTopic`, `NoCluster`, `StoreError`. The future raises what happens later.
        """
        if self._refused:
            raise InvalidInput(self._refused)
        if headers is not None:
            headers = lasting(headers)
        try:
            row = checked_row(self._destination(topic), value, key, headers, partition, timestamp_ms)
        except InvalidRecord as error:
            row = checked_row(self._sender.changed(topic, error), value, key, headers, partition, timestamp_ms)
        return self._accumulator.append(topic, row, on_delivery)

    def send_batch(self, topic: str, rows: pa.RecordBatch | pa.Table) -> Future[BatchMetadata]:
        """Send Arrow rows, and return the future of their places in the log: all of them in one entry, or none.

        The columns are `value` (binary or string, required), `key`, `headers`, `partition` and `timestamp`, as those of
        a Spark write; others are ignored. The rows must not be changed afterwards. Raises what `send` raises.
        """
        self._check_usable()
        try:
            checked = arrow_rows(rows, self._destination(topic))
        except InvalidRecord as error:
            checked = arrow_rows(rows, self._sender.changed(topic, error))
        batch = ArrowBatch(topic, checked, self._accumulator.lock)
        if rows.num_rows == 0:
            batch.succeed({})
        else:
            self._accumulator.add(batch)
        return batch.future

    def partitions_for(self, topic: str) -> int:
        """Return the number of a topic's partitions. Raises what `send` raises for the first row of a topic."""
        self._check_usable()
        return self._destination(topic).partitions

    def flush(self, timeout: float | None = None) -> int:
        """Wait until all rows that were sent before are in the log, or have failed; for `timeout` seconds at most.

        Return the number of batches that are not: 0 unless the time is over.
        """
        timeout = timeout_of(timeout)
        if self._is_finished:
            return 0
        if threading.current_thread() in self._sender.threads:
            raise InvalidInput("a callback of a row cannot flush: it would wait for itself; do it in another thread")
        return self._accumulator.flush(timeout)

    def close(self, timeout: float | None = None) -> None:
        """Flush, for `timeout` seconds at most, and end the threads. Rows that are not written by then fail.

        A Producer that is not closed does this when it is deleted, or when the program ends.
        """
        timeout = timeout_of(timeout)
        if not self._is_finished:
            self._accumulator.lock.refuse_interrupts("close")
            self._refused = self._refused or "this Producer is closed; make a new one"
            _finish(os.getpid(), self._accumulator, self._sender, timeout)
            if threading.current_thread() not in self._sender.threads:  # after an interrupt there may be more to write
                self._finalizer.detach()

    @property
    def _is_finished(self) -> bool:
        """Whether a call of `close` has ended. One in a callback cannot wait, so the next one does so for it."""
        return not self._finalizer.alive

    def _check_usable(self) -> None:
        if self._refused:
            raise InvalidInput(self._refused)

    def _close_with_program(self) -> None:
        self._refused = self._refused or _ENDED
        self.close()

    def _fork(self) -> None:
        """Refuse everything: the threads are in the parent process, and a lock may be held by one of them."""
        self._refused = "this Producer was made before the process was forked; make one in each process"
        self._finalizer.detach()


def _finish_elsewhere(process: int, accumulator: Accumulator, sender: Sender) -> None:
    """Finish in a new thread.

    Garbage is collected in any thread at any moment: also in one that `_finish` waits for, or that holds its locks.
    Python waits for the new thread when the program ends.
    """
    name = "pyspark_log finish"
    threading.Thread(target=_finish, args=(process, accumulator, sender), name=name, daemon=False).start()


def _finish(process: int, accumulator: Accumulator, sender: Sender, timeout: float | None = None) -> None:
    """Write what is left, and end the threads."""
    if process != os.getpid():
        return
    accumulator.close()
    if threading.current_thread() in sender.threads:
        return  # closed in a callback: they end by themselves
    accumulator.flush(timeout)
    sender.abandon(InvalidInput("the Producer was closed before this row was written"), timeout)


_producers: weakref.WeakSet[Producer] = weakref.WeakSet()
_adding = threading.RLock()  # a signal handler may make a Producer while its thread makes one
_closers: list[threading.Thread] = []
"""The thread that closes what is open at the end of the process."""


_ENDED = (
    "the program has ended, so nothing can be sent any more: functions of atexit run after the last rows were written. "
    "Send in the program itself, for example in a finally at its end"
)


def _refuse_after_the_end() -> None:
    main = threading.main_thread()
    if threading.current_thread() is main and not main.is_alive():
        raise InvalidInput(_ENDED)


def _add(producer: Producer) -> None:
    with _adding:
        _producers.add(producer)
        if not _closers:
            _closers.append(threading.Thread(target=_close_at_exit, name="pyspark_log exit"))
            _closers[0].start()


def _close_at_exit() -> None:
    """Close all producers when the main thread and all others that Python waits for have ended.

    Python waits for this thread too. Any later no thread can be started, which writing to several nodes needs.
    """
    main = threading.main_thread()
    main.join()
    while others := [each for each in threading.enumerate() if not each.daemon and each not in {main, *_closers}]:
        others[0].join()
    for producer in list(_producers):
        producer._close_with_program()  # noqa: SLF001 -- of this module


def _fork_all() -> None:
    _adding.release()
    _closers.clear()
    for producer in list(_producers):
        producer._fork()  # noqa: SLF001 -- of this module
    _producers.clear()


os.register_at_fork(before=_adding.acquire, after_in_parent=_adding.release, after_in_child=_fork_all)
