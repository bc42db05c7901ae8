"""The assigned partitions of a consumer: positions, and the rows that were read and not returned yet.

A partition has at most one Arrow batch in memory, and only one partition has one unless some are paused.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyspark_log.clients.records import ConsumerBatch, TopicPartition
from pyspark_log.reading.fetch import fetch, newest_rows
from pyspark_log.reading.planning import Range, find_again, split_of
from pyspark_log_storage.errors import DataLoss, InvalidInput, ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from pyspark_log.options.consumer import ConsumerOptions
    from pyspark_log.reading.fetch import Split
    from pyspark_log_coordinator.group.state import Group
    from pyspark_log_coordinator.log.log import TopicHandle
    from pyspark_log_coordinator.model.partition import Partition


class AssignedPartition:
    """One partition that a consumer reads. The state of the topic is as of the last refresh of the handle."""

    def __init__(self, handle: TopicHandle, number: int, options: ConsumerOptions) -> None:
        self.key = TopicPartition(handle.name, number)
        self.handle = handle
        self.moved: Callable[[], None] = _nobody
        """Called when the partition may have rows to take that it had not before."""
        self._is_paused = False
        self._options = options
        self._offset: int | None = None
        """The next row, or None: as `auto.offset.reset` says."""
        self._epoch = 0
        """The leader epoch in which the rows before the position were read."""
        self._fetched: Iterator[tuple[int, pa.RecordBatch]] | None = None
        self._batch: pa.RecordBatch | None = None
        """Rows from the position on."""
        self._fetched_epoch = 0
        """The leader epoch when the read of these rows was planned."""

    @property
    def state(self) -> Partition:
        """The partition as it is known."""
        return self.handle.partitions[self.key.partition]

    @property
    def is_paused(self) -> bool:
        """Whether none of its rows are returned for now."""
        return self._is_paused

    @is_paused.setter
    def is_paused(self, is_paused: bool) -> None:
        self._is_paused = is_paused
        self.moved()

    @property
    def has_rows(self) -> bool:
        """Whether `take` would return rows without a look at the journal."""
        if self.is_paused:
            return False
        return self._batch is not None or self._fetched is not None or self.position() < self.state.high_watermark

    @property
    def is_within_batch(self) -> bool:
        """Whether rows of the last batch are left."""
        return self._batch is not None

    @property
    def place(self) -> tuple[int | None, int]:
        """The offset to read next and the leader epoch before it, for `go_back`."""
        return self._offset, self._epoch

    def go_back(self, place: tuple[int | None, int]) -> None:
        """Read on from where the partition was."""
        self._fetched = self._batch = None
        self._offset, self._epoch = place
        self.moved()

    def go_to_committed(self, group: Group) -> None:
        """Read on at the committed offset, if there is one."""
        committed = group.committed(self.handle.topic_id, self.key.partition)
        if committed is not None:
            epoch = committed.leader_epoch if committed.leader_epoch >= 0 else self.state.leader_epoch
            self.go_back((committed.offset, epoch))

    def is_rewound(self, group: Group, since: int) -> bool:
        """Return whether the committed offset was reset after rewind number `since`."""
        committed = group.committed(self.handle.topic_id, self.key.partition)
        return committed is not None and committed.rewind > since

    def seek(self, offset: int | None) -> None:
        """Read from `offset` next; None: as `auto.offset.reset` says."""
        self._offset, self._epoch = offset, self.state.leader_epoch
        self._fetched = self._batch = None
        self.moved()

    def position(self) -> int:
        """Return the offset of the next row, which is in the log or its end. Raises `DataLoss`, `InvalidInput`."""
        state = self.state
        offset = self._offset
        if self._batch is not None and offset is not None:
            return offset
        if offset is None:
            return self._reset(f"no offset is given for {self._name}", InvalidInput)
        end = min(state.end_of_epoch(self._epoch), state.high_watermark)
        if offset < state.log_start:
            what = f"{self._name}: offset {offset} has expired, the log begins at {state.log_start}"
            return self._reset(what, DataLoss)
        if offset > end:
            what = f"{self._name}: offset {offset} is not in the log, which ends at {end}"
            return self._reset(what, DataLoss)
        return offset

    def take(self, rows_max: int | None) -> ConsumerBatch | None:
        """Return the next rows, or None if there are none below the high watermark.

        Raises `CorruptObject`, `StoreError`, and `DataLoss` or `InvalidInput` if `auto.offset.reset` is none.
        """
        if self._batch is None and not self._read():
            return None
        batch, offset = self._batch, self._offset
        assert batch is not None
        assert offset is not None
        if rows_max is not None and rows_max < batch.num_rows:
            rows, self._batch = batch.slice(0, rows_max), batch.slice(rows_max)
        else:
            rows, self._batch = batch, None
        self._offset, self._epoch = offset + rows.num_rows, self._fetched_epoch
        return ConsumerBatch(*self.key, offset, rows)

    @property
    def _name(self) -> str:
        return f"topic {self.key.topic!r}, partition {self.key.partition}"

    def _reset(self, what: str, error: type[DataLoss | InvalidInput]) -> int:
        state = self.state
        match self._options.reset:
            case "earliest":
                self.seek(state.log_start)
            case "latest":
                self.seek(state.high_watermark)
            case _:
                raise error(f"{what}, and auto.offset.reset is none; seek to an offset, or set earliest or latest")
        assert self._offset is not None
        return self._offset

    def _read(self) -> bool:
        """Read the next batch, and return whether there is one."""
        try:
            return self._read_next()
        except (DataLoss, ObjectMissing):
            # Maintenance has moved or deleted the files since the read was planned.
            self._fetched = None
            self.handle.refresh()
            return self._read_next()
        except BaseException:
            self._fetched = None
            raise

    def _read_next(self) -> bool:
        while True:
            if self._fetched is None:
                start, end = self.position(), self.state.high_watermark
                if start >= end:
                    return False
                log = self.handle.log
                split = split_of(self.handle, Range(*self.key, start, end), self._options.rack)
                again, joined = partial(find_again, log, split), self._options.partition_fetch_bytes
                # A `map` keeps none of the rows that it has returned, as a generator would.
                self._fetched = map(partial(_as_newest, split), fetch(log.store_at, split, again, joined))
                self._fetched_epoch = self.state.leader_epoch
            for offset, batch in self._fetched:
                assert offset == self._offset
                self._batch = batch
                return True
            self._fetched = None


def _nobody() -> None:
    """Tell nobody."""


def _as_newest(split: Split, fetched: tuple[int, pa.RecordBatch]) -> tuple[int, pa.RecordBatch]:
    offset, rows = fetched
    return offset, newest_rows(split, rows)
