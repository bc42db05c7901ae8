"""A source and a sink that only write down how Spark calls them.

Spark runs them in several processes: planners beside the driver, a runner for each stream, workers for the
tasks. So every call is a JSON line appended to `calls.jsonl` in the folder that the option `journal` names.
Option `failsIn` names the call that raises, `hidesTraceback` whether it asks pyspark for the message alone.

The source counts: row n is (n, "row n"). The file `rows` in the folder says how many there are so far.
"""

# ruff: noqa: N802 - Spark's names are in camelCase

import json
import os
import signal
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

SCHEMA = "id BIGINT, text STRING"
SENTINEL = {"begin": "wherever the log begins"}
LOCAL_PROPERTIES = ("sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id")


class Journal:
    """Where the probes of one test write their calls down."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.folder = Path(options["journal"])
        self.fails_in = options.get("failsin")
        self.hides_traceback = options.get("hidestraceback") == "true"

    def called(self, call: str, **facts: Any) -> None:
        """Append one line for `call`, and raise if it is the one that is to fail."""
        over_tcp = "PYTHON_WORKER_FACTORY_SECRET" in os.environ
        line = json.dumps({"call": call, "pid": os.getpid(), "over_tcp": over_tcp, **facts}) + "\n"
        with (self.folder / "calls.jsonl").open("a") as journal:
            journal.write(line)
        if call == self.fails_in:
            if self.hides_traceback:
                os.environ["SPARK_HIDE_TRACEBACK"] = "1"
            msg = f"the probe fails in {call}"
            raise RuntimeError(msg) from OSError("what the disk said")

    def rows(self) -> int:
        """How many rows the source has by now."""
        return int((self.folder / "rows").read_text())

    def checkpointed(self, log: str) -> list[int]:
        """The batches in the checkpoint's `offsets` or `commits` at this moment."""
        entries = (self.folder / "checkpoint" / log).glob("[0-9]*")
        return sorted(int(entry.name) for entry in entries)


def offset_at(row: int) -> dict[str, Any]:
    """The source's offset, with keys out of order and a letter that JSON may write in two ways."""
    return {"row": row, "log": "été"}


def reordered(offset: dict[str, Any]) -> dict[str, Any]:
    """An equal offset whose JSON text differs."""
    return dict(reversed(offset.items()))


@dataclass
class Rows(InputPartition):
    """The rows of one split."""

    start: int
    end: int


@dataclass
class Written(WriterCommitMessage):
    """What one task wrote."""

    writer: str
    rows: int
    properties: dict[str, str | None]


def counted(
    journal: Journal, schema: StructType, split: InputPartition
) -> Iterator[tuple[object, ...] | pa.RecordBatch]:
    """The rows of a split; or the Arrow batches in the folder's `*.given` files, when there are any."""
    journal.called("read", split=repr(split))
    given = sorted(journal.folder.glob("*.given"))
    for file in given:
        yield from pa.ipc.open_stream(file.read_bytes())
    if isinstance(split, Rows) and not given:
        for n in range(split.start, split.end):
            row = {"id": n, "text": f"row {n}"}
            yield tuple(row[name] for name in schema.names)


class ProbeReader(DataSourceReader):
    """The batch reader: one split, or none when there are no rows."""

    def __init__(self, journal: Journal, schema: StructType) -> None:
        self.journal = journal
        self.schema = schema
        journal.called("reader.__init__")

    def partitions(self) -> list[InputPartition]:
        rows = self.journal.rows()
        self.journal.called("partitions")
        return [Rows(0, rows)] if rows else []

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...] | pa.RecordBatch]:
        return counted(self.journal, self.schema, partition)


class PushingReader(ProbeReader):
    """A batch reader to which filters are pushed: `id = n` prunes its rows."""

    pruned: InputPartition | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self.journal.called("pushFilters", filters=[repr(each) for each in filters])
        for each in filters:
            if isinstance(each, EqualTo) and each.attribute == ("id",):
                self.pruned = Rows(each.value, each.value + 1)
        return filters

    def partitions(self) -> list[InputPartition]:
        planned = super().partitions()
        return planned if self.pruned is None else [self.pruned]


class LimitedStreamReader(DataSourceStreamReader):
    """A stream reader with admission control, but not ready for Trigger.AvailableNow."""

    def __init__(self, journal: Journal, options: Mapping[str, str], schema: StructType) -> None:
        self.made = uuid.uuid4().hex
        self.journal = journal
        self.schema = schema
        self.per_trigger = int(options.get("pertrigger", "1000"))
        self.reorders = options.get("reorders") == "true"
        self.splits = int(options.get("splits", "1"))
        journal.called("streamReader.__init__", made=self.made)

    def initialOffset(self) -> dict[str, Any]:
        self.journal.called("initialOffset", returned=SENTINEL)
        return SENTINEL

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self.journal.called("partitions", start=start, end=end)
        first, last = start.get("row", 0), end["row"]
        return [Rows(first, last)] if first < last else []

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...] | pa.RecordBatch]:
        self.journal.called("stream read", made=self.made)
        return counted(self.journal, self.schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self.journal.called("source commit", end=end, offsets=self.journal.checkpointed("offsets"))

    def stop(self) -> None:
        self.journal.called("stop", made=self.made)

    def getDefaultReadLimit(self) -> ReadLimit:
        self.journal.called("getDefaultReadLimit")
        signal.signal(signal.SIGTERM, self.terminated)
        return ReadMaxRows(self.per_trigger)

    def terminated(self, *_: object) -> None:
        """Record that the JVM told this process to go, and go; the JVM may say so twice."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.journal.called("SIGTERM")
        sys.exit(0)

    def latestOffset(  # type: ignore[override]
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        first, available = start.get("row", 0), self.journal.rows()
        count = limit.max_rows if isinstance(limit, ReadMaxRows) else available
        end = offset_at(min(first + count, available))
        if self.reorders and start == end:
            self.reorders, end = False, reordered(start)
        commits = self.journal.checkpointed("commits")
        self.journal.called("latestOffset", start=start, limit=repr(limit), returned=end, commits=commits)
        return end

    def reportLatestOffset(self) -> dict[str, Any]:
        self.journal.called("reportLatestOffset")
        return {"newest": self.journal.rows()}


class ProbeStreamReader(LimitedStreamReader, SupportsTriggerAvailableNow):
    """A stream reader with all there is."""

    def prepareForTriggerAvailableNow(self) -> None:
        self.journal.called("prepareForTriggerAvailableNow")


class AheadStreamReader(ProbeStreamReader):
    """A stream reader whose planner has read the rows when it answers with the partitions: see `HandingOver`."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        planned = super().partitions(start, end) * self.splits
        self.__class__ = HandingOver  # type: ignore[assignment]
        return planned


class HandingOver(AheadStreamReader, _SimpleStreamReaderWrapper):
    """That reader until Spark has taken the rows. Only from this class does Spark take any."""

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        self.journal.called("getCache")
        self.__class__ = AheadStreamReader  # type: ignore[assignment]
        if given := sorted(self.journal.folder.glob("*.given")):
            return (batch for file in given for batch in pa.ipc.open_stream(file.read_bytes()))
        numbers = range(start.get("row", 0), end["row"])
        columns = {"id": pa.array(numbers, pa.int64()), "text": [f"ahead {n}" for n in numbers]}
        return iter([pa.record_batch(columns)])


class ProbeWriting:
    """What the batch writer and the stream writer have in common."""

    def __init__(self, journal: Journal) -> None:
        self.made = uuid.uuid4().hex
        self.journal = journal

    def write(self, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        properties = {name: context.getLocalProperty(name) for name in LOCAL_PROPERTIES}
        attempt = (context.partitionId(), context.attemptNumber())
        self.journal.called("write", writer=self.made, properties=properties, attempt=attempt)
        arrived = list(batches)
        self.journal.called(
            f"write {attempt}",
            rows=[batch.num_rows for batch in arrived],
            fields=[[field.name, str(field.type), field.nullable] for field in arrived[0].schema] if arrived else [],
        )
        if arrived and (self.journal.folder / "keep").exists():
            with pa.ipc.new_stream(self.journal.folder / "kept.arrow", arrived[0].schema) as stored:
                for batch in arrived:
                    stored.write_batch(batch)
        return Written(self.made, sum(batch.num_rows for batch in arrived), properties)

    def commit(self, messages: list[WriterCommitMessage | None], batch: int | None = None) -> None:
        self.ended("sink commit", messages, batch)

    def abort(self, messages: list[WriterCommitMessage | None], batch: int | None = None) -> None:
        self.ended("sink abort", messages, batch)

    def ended(self, call: str, messages: list[WriterCommitMessage | None], batch: int | None) -> None:
        """Record a commit or an abort."""
        self.journal.called(call, writer=self.made, batch=batch, messages=[m and vars(m) for m in messages])


class ProbeWriter(ProbeWriting, DataSourceArrowWriter):
    """The batch writer."""


class ProbeStreamWriter(ProbeWriting, DataSourceStreamArrowWriter):
    """The stream writer."""


class Probe(DataSource):
    """`format("probe")`."""

    @classmethod
    def name(cls) -> str:
        return "probe"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self.journal = Journal(options)
        self.journal.called("__init__", options=dict(options))

    def schema(self) -> str:
        self.journal.called("schema")
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        self.journal.called("reader", schema=schema.simpleString())
        kind = PushingReader if self.options.get("kind") == "pushing" else ProbeReader
        return kind(self.journal, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        self.journal.called("streamReader", schema=schema.simpleString())
        kinds = {"limited": LimitedStreamReader, "ahead": AheadStreamReader}
        kind = kinds.get(self.options.get("kind", ""), ProbeStreamReader)
        return kind(self.journal, self.options, schema)

    def writer(self, *args: Any, **kwargs: Any) -> ProbeWriter:
        schema, overwrite = args
        self.journal.called("writer", schema=schema.json(), overwrite=overwrite, by_keyword=sorted(kwargs))
        return ProbeWriter(self.journal)

    def streamWriter(self, *args: Any, **kwargs: Any) -> ProbeStreamWriter:
        writer = ProbeStreamWriter(self.journal)
        given = dict(zip(("schema", "overwrite"), args, strict=False)) | kwargs
        overwrite, by_keyword = given["overwrite"], sorted(kwargs)
        self.journal.called("streamWriter", writer=writer.made, overwrite=overwrite, by_keyword=by_keyword)
        return writer
