"""`pyspark_log` with traps: the product's own data source, stopped or killed at a named point, once.

A trap is a file `<point>.armed` in the folder that the option `trap` names. The first process that comes to the point
renames the file to `<point>.<its pid>`, so that nobody else falls into it, and then sends itself the signal that is in
the file. A process that was stopped and is continued leaves `<point>.resumed`.
"""

# ruff: noqa: N802, N803 - Spark's names are in camelCase

import json
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from pyspark_log.datasource import DefaultSource
from pyspark_log.options import parse_sink
from pyspark_log.sink.writer import BATCH_ID, StreamWriter
from pyspark_log.source.readers import StreamReader
from pyspark_log.source.splits import SmallBatch
from pyspark_log_coordinator.log.log import TopicHandle

FORMAT = "pyspark_log_faulty"

PLANNING = "planning"  # the source has found new rows; Spark has not written them into its offset log
HANDING = "handing"  # beside the driver, when the rows of a small micro-batch have been read
READING = "reading"  # in an executor, before the first row of a split; not in a small micro-batch
STAGING = "staging"  # in an executor, before the first row is taken
STAGED = "staged"  # in an executor, when the task's rows are durable and its message is not sent
COMMITTING = "committing"  # beside the driver, with all messages
COMMITTED = "committed"  # beside the driver, when the journal's entry is there and Spark does not know it


def sequenced(topic: str) -> str:
    """Name the point right after the journal's entry of one topic of a batch."""
    return f"sequenced {topic}"


class Trap:
    """The folder of the traps, seen by who sets them and by who falls into them."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    def set(self, point: str, what: signal.Signals, batch: int | None = None) -> None:
        """Let the next process at `point`, of micro-batch `batch` if one is given, get a signal."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = self.folder / "new"
        fresh.write_text(json.dumps({"signal": what, "batch": batch}))
        fresh.rename(self.folder / f"{point}.armed")

    def caught(self, point: str) -> int | None:
        """The pid of the process that fell into the trap, once it is dead, or stopped for good."""
        for file in self.folder.glob(f"{point}.[0-9]*"):
            pid = int(file.suffix[1:])
            try:
                halted = psutil.Process(pid).status() in {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}
            except psutil.NoSuchProcess:
                halted = True
            return pid if halted else None
        return None

    def resumed(self, point: str) -> bool:
        """Whether the process that was stopped there has gone on."""
        return (self.folder / f"{point}.resumed").exists()

    def reach(self, point: str, batch: int | None = None) -> None:
        """Fall into the trap at `point`, if there is one."""
        armed = self.folder / f"{point}.armed"
        try:
            found = json.loads(armed.read_text())
            if found["batch"] not in {None, batch}:
                return
            armed.rename(self.folder / f"{point}.{os.getpid()}")
        except FileNotFoundError:
            return
        # To this thread: another thread that stops for the process would let this one go on for a while.
        signal.pthread_kill(threading.get_ident(), found["signal"])
        (self.folder / f"{point}.resumed").touch()


def _batch() -> int | None:
    """The micro-batch of the task that this process works for."""
    context = TaskContext.get()
    batch = context.getLocalProperty(BATCH_ID) if context is not None else None
    return int(batch) if batch is not None else None


class FaultyStreamReader(StreamReader):
    """The product's reader, with the traps of a source."""

    def __init__(self, schema: StructType, options: dict[str, str], trap: Trap) -> None:
        super().__init__(schema, options)
        self._trap = trap

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        found = super().latestOffset(start, limit)
        if found != start:
            self._trap.reach(PLANNING)
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        found = super().partitions(start, end)
        if any(isinstance(each, SmallBatch) for each in found):
            self._trap.reach(HANDING)
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._trap.reach(READING, _batch())
        return super().read(partition)


class FaultyStreamWriter(StreamWriter):
    """The product's writer, with the traps of a sink."""

    def __init__(self, schema: StructType, options: Any, trap: Trap) -> None:
        super().__init__(schema, options)
        self._trap = trap

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        self._trap.reach(STAGING, _batch())
        message = super().write(iterator)
        self._trap.reach(STAGED, _batch())
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._trap.reach(COMMITTING, batchId)
        submit = TopicHandle.submit

        def submit_and_reach(handle: TopicHandle, command: Any, *inbox: Any) -> Any:
            outcome = submit(handle, command, *inbox)
            self._trap.reach(sequenced(handle.name), batchId)
            return outcome

        with mock.patch.object(TopicHandle, "submit", submit_and_reach):
            super().commit(messages, batchId)
        self._trap.reach(COMMITTED, batchId)


class FaultySource(DefaultSource):
    """`format("pyspark_log_faulty")`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def __init__(self, options: dict[str, str]) -> None:
        theirs = dict(options)
        self._trap = Trap(theirs.pop("trap"))
        super().__init__(type(options)(theirs))

    def streamReader(self, schema: StructType) -> StreamReader:
        return FaultyStreamReader(schema, dict(self.options), self._trap)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return FaultyStreamWriter(schema, parse_sink(self.options, streaming=True), self._trap)
