"""Fan-out: writing one large object to several stores at once.

Each store has a lane: a thread that is handed the pieces. A store that fails, or that falls so far behind that it must
be taken for dead, loses its lane, and the others go on: the object is written where any store is left. So nobody waits
for a dead disk longer than once, and who was left out is known at the end.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from typing import TYPE_CHECKING, Protocol

from pyspark_log_storage.errors import (
    CorruptObject,
    LogError,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    StoreUnwritable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark_log_storage.store import ObjectWriter, Store

PIECES_WAITING_MAX = 2
"""How many pieces may wait for one store: the memory that a slow one costs."""
SLOWER_SECONDS = 30.0
"""How much longer than the quickest store another may take (Kafka's request.timeout.ms)."""

_LOOK_SECONDS = 0.01
_CLOSE_LOOK_SECONDS = 0.001


def is_node_failure(error: LogError) -> bool:
    """Return whether an error says that a node is away or broken, whoever asks.

    Missing rights and wrong settings are the asker's: they must not put a node that is well out of what others rely on.
    """
    if isinstance(error, StoreUnwritable):
        return True
    return isinstance(error, (StoreError, CorruptObject)) and not isinstance(error, StoreRefused)


def main_reason(failures: Iterable[LogError]) -> LogError:
    """Return the error to raise if every store failed: a retriable one if there is any, for that store may return."""
    return min(failures, key=lambda error: not error.retriable)


class Lane(Protocol):
    """One store's share of a fan-out."""

    error: Exception | None
    """Why the store does not get the object."""

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen: the object is published, or given up."""

    def put(self, pieces: tuple[bytes, ...], late: float) -> None:
        """Hand over what is to be written in one go.

        Where there is no room until `late` (seconds, `time.monotonic`) the lane has failed.
        """

    def close(self, late: float) -> None:
        """Hand over the end."""

    def wait(self, seconds: float | None) -> None:
        """Wait until the lane has ended, or so long."""

    def give_up(self) -> None:
        """Take the store for dead."""

    def abandon(self) -> None:
        """Write no more; what is there is removed as soon as the store answers."""


class FanOutWriter:
    """Writes one object at the same key of several stores. Used by one thread."""

    def __init__(
        self,
        stores: Mapping[str, Store],
        key: str,
        *,
        durable: bool = True,
        enough: int | None = None,
        slower_seconds: float = SLOWER_SECONDS,
        lane: Callable[..., Lane] | None = None,
    ) -> None:
        """`stores` are named, by node. `enough`: the end waits for so many, the others go on by themselves; None: all.

        `lane` makes a store's share; of itself it is a thread.
        """
        assert stores
        self._enough = len(stores) if enough is None else enough
        self._slower_seconds = slower_seconds
        make = lane or ThreadLane
        self._lanes = {name: make(store, key, durable=durable) for name, store in stores.items()}
        self.failures: dict[str, LogError] = {}
        """Why a store does not get the object."""

    @property
    def done(self) -> tuple[str, ...]:
        """The names of the stores that have the object, whole, after `close`."""
        return tuple(self._lanes)

    def write(self, *pieces: bytes) -> None:
        """Append bytes, which must not change afterwards. Raises `StoreError` where no store is left."""
        late = time.monotonic() + self._slower_seconds
        for lane in self._lanes.values():
            lane.put(pieces, late)
        self._drop_failed()

    def close(self) -> None:
        """Publish the object in every store that is left. Raises `StoreError` where none could."""
        for lane in self._lanes.values():
            lane.close(time.monotonic() + self._slower_seconds)
        lanes = list(self._lanes.values())
        late = None
        while waiting := [lane for lane in lanes if not lane.ended]:
            if sum(lane.ended and lane.error is None for lane in lanes) >= self._enough:
                self._lanes = {name: lane for name, lane in self._lanes.items() if lane.ended}
                break
            if late is None and len(waiting) < len(lanes):
                late = time.monotonic() + self._slower_seconds
            if late is not None and time.monotonic() >= late:
                for lane in waiting:
                    lane.give_up()
                break
            waiting[0].wait(None if len(lanes) == 1 else _CLOSE_LOOK_SECONDS)
        self._drop_failed()

    def discard(self) -> None:
        """Give the object up everywhere; a store that hangs is not waited for. Does nothing after `close`."""
        for lane in self._lanes.values():
            lane.abandon()

    def _drop_failed(self) -> None:
        failed = {name: lane.error for name, lane in self._lanes.items() if lane.error is not None}
        for error in failed.values():
            if not isinstance(error, LogError) or not is_node_failure(error):
                self.discard()
                raise error
        for name, error in failed.items():
            assert isinstance(error, LogError)
            self.failures[name] = error
            self._lanes.pop(name).abandon()
        if not self._lanes:
            raise main_reason(self.failures.values())


class ThreadLane:
    """A thread that writes what it is handed."""

    def __init__(self, store: Store, key: str, *, durable: bool) -> None:
        self._store, self._key, self._durable = store, key, durable
        self._pieces: queue.Queue[tuple[bytes, ...] | None] = queue.Queue(PIECES_WAITING_MAX)
        self._abandoned = False
        self.error: Exception | None = None
        self._end = threading.Event()
        # A daemon: a store that hangs must not keep the process from ending.
        threading.Thread(target=self._run, name=f"write to {store.url}", daemon=True).start()

    @property
    def ended(self) -> bool:
        return self._end.is_set()

    def put(self, pieces: tuple[bytes, ...], late: float) -> None:
        self._hand_over(pieces, late)

    def close(self, late: float) -> None:
        self._hand_over(None, late)

    def wait(self, seconds: float | None) -> None:
        self._end.wait(seconds)

    def give_up(self) -> None:
        if self.error is None:
            message = f"{self._store.url} takes too long to write {self._key}; check its disk, mount or network"
            self.error = StoreUnavailable(self._store.url, self._key, message)

    def abandon(self) -> None:
        self._abandoned = True
        with contextlib.suppress(queue.Full):  # else the thread sees the mark before it writes the next piece
            self._pieces.put_nowait(None)

    def _hand_over(self, pieces: tuple[bytes, ...] | None, late: float) -> None:
        while self.error is None:
            try:
                self._pieces.put(pieces, timeout=_LOOK_SECONDS)
            except queue.Full:
                if time.monotonic() >= late:
                    self.give_up()
            else:
                return

    def _run(self) -> None:
        writer: ObjectWriter | None = None
        try:
            writer = self._store.open_write(self._key, durable=self._durable)
            while (pieces := self._pieces.get()) is not None and not self._abandoned:
                writer.write(*pieces)
            if not self._abandoned:
                writer.close()
        except Exception as error:  # noqa: BLE001 -- raised again in the caller's thread
            self.error = self.error or error
        finally:
            if writer is not None:
                with contextlib.suppress(LogError):
                    writer.discard()  # after `close` this does nothing
            self._end.set()
