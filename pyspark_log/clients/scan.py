"""A scan: the rows of a topic as one Arrow stream, for Polars, DuckDB, pandas and whatever else reads Arrow.

The rows are fixed when the scan is made, so it holds the names of their files, and no rows. Each time that it is
consumed it reads them again, from the beginning, one row group or chunk at a time.
"""

from __future__ import annotations

import itertools
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_log import opening
from pyspark_log.options import parse_source
from pyspark_log.options.bounds import options_between
from pyspark_log.reading import batch_read_plan, planning
from pyspark_log.reading.arrow_rows import COLUMNS, record_schema, typed_schema
from pyspark_log.reading.newest_rows import check_compacted, keyed_partition
from pyspark_log.reading.rows import LogAt, Lost, read_rows
from pyspark_log_storage.columns import schema as stored
from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from pyspark_log.options.bounds import Bound
    from pyspark_log.reading.fetch import Split
    from pyspark_log.reading.newest_rows import KeyedPartition
    from pyspark_log_storage.stores.storage_options import StorageOptions


class Scan:
    """The rows of a topic, of which `scan` has fixed which they are. Any number of threads may consume it."""

    def __init__(
        self,
        topic: str,
        version: int,
        schema: pa.Schema,
        parts: Sequence[tuple[Split, KeyedPartition | None]],
        at: Callable[[], LogAt],
        lost: Lost,
    ) -> None:
        """Of a part with a keyed partition only the newest row of each key is read."""
        self._parts, self._at, self._lost = parts, at, lost
        self.topic = topic
        self.version = version
        """The version of the topic, the number of an entry of its journal, whose rows these are."""
        self.schema = schema
        """The columns, as an Arrow schema."""

    @property
    def num_rows(self) -> int:
        """The number of rows; of a compacted topic how many there are at most."""
        return sum(each.end - each.start for each, _ in self._parts)

    def __repr__(self) -> str:
        return (
            f"Scan(topic={self.topic!r}, version={self.version}, num_rows={self.num_rows}, columns={self.schema.names})"
        )

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Read the rows, partition by partition, and in a partition in the order of their offsets.

        A batch has rows of one partition: a row group or a chunk, about 8 MiB of them or less, or several small ones.
        Besides the batch at most one chunk is in memory.

        Raises `CorruptObject` or `StoreError` if no node has a readable copy of the next rows, and `DataLoss` if they
        expired, were deleted or were cut by an unclean election after the scan was made. With failOnDataLoss=false
        these are left out.
        """
        at = self._at()
        parts = (read_rows(split, at, self.schema, newest=keyed, lost=self._lost) for split, keyed in self._parts)
        return map(itemgetter(1), itertools.chain.from_iterable(parts))

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a reader of PyArrow, which reads them while it is consumed."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def __arrow_c_schema__(self) -> object:
        """Return the columns as a PyCapsule: the Arrow PyCapsule interface."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as a PyCapsule with an Arrow C stream: the Arrow PyCapsule interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


def scan(  # noqa: PLR0913 -- each is a fact of its own
    path: str,
    topic: str,
    start: Bound = "earliest",
    end: Bound = "latest",
    *,
    columns: Sequence[str] | None = None,
    partitions: Collection[int] | None = None,
    version: int | None = None,
    latest: bool = False,
    options: Mapping[str, object] | None = None,
) -> Scan:
    """Return the rows of a topic from `start` up to but not including `end` as one Arrow stream. Needs no Spark.

        polars.DataFrame(scan("/data/log", "flights"))
        duckdb.from_arrow(scan("/data/log", "flights", columns=["key", "timestamp"]))

    The result has Arrow's C stream interface (`__arrow_c_stream__`), and is an iterable of Arrow batches. Its rows are
    fixed now, whoever writes meanwhile; it can be consumed again and has the same rows.

    A time, which needs a time zone, means the first row of each partition with this timestamp or a later one, as in
    Kafka; if there is none, the end. It is rounded down to milliseconds. Offsets are a dict by partition:
    `{0: 120, 1: 98}`. Only the row groups and chunks between the two are read. `columns` are those to return, in this
    order (default: all); the others are not decoded. `partitions` are those to read (default: those with offsets, else
    all). `version` reads the topic as of a version (see versionAsOf). With `latest` the rows are the newest of each key
    of a topic with cleanup.policy=compact, without deleted keys; it takes no start and no end, and has the keys of all
    rows that are not compacted in memory. `options` are other options of a batch read:
    `storage_options`, `client.rack`, `failOnDataLoss`, `includeHeaders`.

    Rows of a typed topic have the columns topic, partition, offset and timestamp, and then the topic's; others have
    key, value, topic, partition, offset, timestamp, timestampType and headers.

    The call writes nothing and belongs to no group. Raises `InvalidInput` for an argument that cannot be used, and what
    a batch read raises: `UnknownTopic`, `UnknownVersion` and `DataLoss`, for example.
    """
    if latest and (start, end) != ("earliest", "latest"):
        raise InvalidInput("latest has the newest row of each key, wherever it is; omit start and end, or give version")
    path = opening.canonical(path)  # the working folder may be another one when the rows are read
    parsed = parse_source(
        {**options_between(topic, start, end, partitions, version, options), "path": path}, streaming=False
    )
    now, ranges = batch_read_plan.ranges_of(parsed)
    handle = now.handles[topic]
    newest = handle.schemas[-1]
    if stored.is_typed(newest):
        known = typed_schema(stored.columns_of(newest))
    else:
        known = record_schema(tuple(name for name in COLUMNS if parsed.include_headers or name != "headers"))
    splits = [planning.split_of(handle, each, parsed.client_rack) for each in ranges if each.rows > 0]
    chosen = known if columns is None else _chosen(known, columns, topic)
    if latest:
        check_compacted(handle, ranges)
    parts = [(each, keyed_partition(handle, each.partition) if latest else None) for each in splits]
    version = handle.version if version is None else version
    lost = Lost.ERROR if parsed.fail_on_data_loss else Lost.LEFT_OUT
    return Scan(topic, version, chosen, parts, partial(_log_at, path, parsed.storage_options), lost)


def _log_at(path: str, options: StorageOptions) -> LogAt:
    """Return where the rows are for one thread: it has stores of its own."""
    return LogAt(opening.own_stores_at(path, options), partial(opening.open_log, path, options))


def _chosen(known: pa.Schema, columns: Sequence[str], topic: str) -> pa.Schema:
    """Return the schema of some columns of a topic, in the order given. Raises `InvalidInput`."""
    if isinstance(columns, str):
        raise InvalidInput(f"columns is {columns!r}; expected a list of names, such as [{columns!r}]")
    names = list(columns)
    if not names:
        raise InvalidInput("columns is empty; name those to read, or omit it to read all")
    for number, name in enumerate(names):
        if name not in known.names:
            raise InvalidInput(f"topic {topic!r}: unknown column {name!r}; the columns are {', '.join(known.names)}")
        if name in names[:number]:
            raise InvalidInput(f"columns has {name!r} twice; name each column once")
    return pa.schema([known.field(name) for name in names])
