"""Fan-out: one large object, written to several stores at once.

Each store is written by a thread of its own. A store that fails, or falls far behind the others, is left out, and the
object is written as long as one store remains. So a hanging disk costs one wait, and the writer knows at the end which
stores were left out. A store that fails does not limit the time of the others, which may be slow: that begins when the
fastest is done.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING

from pyspark_log_storage.errors import LogError, StoreUnavailable, is_node_failure, main_reason
from pyspark_log_storage.stores.store_threads import Answer, StoreThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark_log_storage.stores.store import ObjectWriter, Store

PIECES_PENDING_MAX = 3
"""How many pieces of a store may be unwritten. Bounds the memory that a slow store costs."""
SLOWER_SECONDS = 30.0
"""How much longer than the fastest store another may take (Kafka's request.timeout.ms)."""
HANGING_SECONDS = 120.0
"""How long `close` waits for the fastest store (Kafka's delivery.timeout.ms), and longer for a large object."""
BYTES_PER_SECOND_MIN = 1024 * 1024
"""How fast the fastest store must be. Some send an object only when it is complete."""
_SUSPENDED_SECONDS = 1.0
"""If a wait took so much longer than it should, this process was suspended."""
_CLOSE = "close"


class FanOutWriter:
    """Writes one object under the same key of several stores. Used by one thread."""

    def __init__(
        self,
        stores: Mapping[str, Store],
        key: str,
        *,
        durable: bool = True,
        enough: int | None = None,
        slower_seconds: float = SLOWER_SECONDS,
        store_threads: Callable[[str], StoreThreads] = StoreThreads,
    ) -> None:
        """`stores` are by node. `close` waits for `enough` of them (None: all); others continue in the background."""
        assert stores
        self._stores = stores
        self._key = key
        self._enough = len(stores) if enough is None else enough
        self._slower_seconds = slower_seconds
        self._threads = store_threads("write to")
        self._copies = {name: _Copy(partial(store.open_write, key, durable=durable)) for name, store in stores.items()}
        self._bytes = 0
        self._closed: list[str] = []
        self._seconds = self._deadline = 0.0
        """How long to wait for the stores, and until when. Then those that are waited for are left out."""
        self.failures: dict[str, LogError] = {}
        """Why a store does not get the object."""

    @property
    def done(self) -> tuple[str, ...]:
        """The names of the stores that have the whole object, after `close`."""
        return tuple(self._copies)

    def write(self, *pieces: bytes) -> None:
        """Append bytes, which must not change afterwards. Raises `StoreError` if no store is left."""
        self._bytes += sum(memoryview(each).nbytes for each in pieces)
        self._wait_for(self._slower_seconds)
        for name, copy in list(self._copies.items()):
            self._start(name, partial(copy.do, lambda writer: writer.write(*pieces)))
        self._take_what_is_ready()
        self._require_a_store()

    def close(self) -> None:
        """Publish the object in every store that is left. Raises `StoreError` if none can."""
        self._wait_for(self._slower_seconds)
        for name, copy in list(self._copies.items()):
            self._start(name, partial(copy.do, lambda writer: writer.close()), _CLOSE)
        self._wait_for(HANGING_SECONDS + self._bytes / BYTES_PER_SECOND_MIN)
        is_one_done = False
        while (waiting := self._copies.keys() - self._closed) and len(self._closed) < self._enough:
            if self._closed and not is_one_done:
                is_one_done = True
                self._wait_for(self._slower_seconds)
            answer = self._next()
            if answer is not None:
                self._take(answer)
            else:
                for name in waiting:
                    self._leave_out(name, self._too_slow(name))
        self._take_what_is_ready()
        self._threads.end()
        self._copies = {name: copy for name, copy in self._copies.items() if name in self._closed}
        self._require_a_store()

    def discard(self) -> None:
        """Remove the object everywhere, without waiting for stores that hang. Does nothing after `close`."""
        for name, copy in self._copies.items():
            if name not in self._closed:
                self._abandon(name, copy)
        self._threads.end()

    def _start(self, name: str, step: Callable[[], None], tag: str | None = None) -> None:
        """Start the next step in a store, once it has room for it; leave the store out if it has none in time."""
        while name in self._copies and self._threads.pending(name) >= PIECES_PENDING_MAX:
            answer = self._next()
            if answer is not None:
                self._take(answer)
            else:
                self._leave_out(name, self._too_slow(name))
        if name in self._copies:
            self._threads.start(name, step, tag)

    def _next(self) -> Answer | None:
        """Return the next answer, or None at the deadline.

        If this process was suspended meanwhile, its threads were, too: the stores get all their time once more.
        """
        while True:
            began = time.monotonic()
            seconds = max(0.0, self._deadline - began)
            answer = self._threads.next(seconds)
            if answer is not None or time.monotonic() - began - seconds < _SUSPENDED_SECONDS:
                return answer
            self._wait_for(self._seconds)

    def _wait_for(self, seconds: float) -> None:
        """Give the stores so much time from now on."""
        self._seconds, self._deadline = seconds, time.monotonic() + seconds

    def _take_what_is_ready(self) -> None:
        while (answer := self._threads.next(0)) is not None:
            self._take(answer)

    def _take(self, answer: Answer) -> None:
        """Note how a step ended. Raises the error of one that is not the fault of a node."""
        if answer.store not in self._copies:
            return
        if answer.error is None:
            self._closed += [answer.store] if answer.tag == _CLOSE else []
        elif isinstance(answer.error, LogError) and is_node_failure(answer.error):
            self._leave_out(answer.store, answer.error)
        else:
            self.discard()
            raise answer.error

    def _leave_out(self, name: str, error: LogError) -> None:
        self.failures[name] = error
        self._abandon(name, self._copies.pop(name))

    def _abandon(self, name: str, copy: _Copy) -> None:
        copy.abandoned = True
        self._threads.start(name, copy.discard)

    def _too_slow(self, name: str) -> StoreUnavailable:
        url = self._stores[name].url
        message = f"{url} takes too long to write {self._key}; check its disk, mount or network"
        return StoreUnavailable(url, self._key, message)

    def _require_a_store(self) -> None:
        if not self._copies:
            self._threads.end()
            raise main_reason(self.failures.values())


class _Copy:
    """The object in one store. Its methods run in the thread of the store."""

    def __init__(self, open_writer: Callable[[], ObjectWriter]) -> None:
        self._open_writer = open_writer
        self._writer: ObjectWriter | None = None
        self.abandoned = False
        """Also set from outside, so that the steps that were started before are skipped."""

    def do(self, step: Callable[[ObjectWriter], None]) -> None:
        """Do a step with the writer of the object, which the first one opens."""
        if self.abandoned:
            return
        try:
            if self._writer is None:
                self._writer = self._open_writer()
            step(self._writer)
        except Exception:
            self.discard()  # here, because the writer may not wait for this store any more
            raise

    def discard(self) -> None:
        self.abandoned = True
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(LogError):
                writer.discard()
