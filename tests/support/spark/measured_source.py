"""The data source, whose tasks write down the most memory that their Python worker used."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from pyspark_log import DefaultSource
from pyspark_log.options import SourceOptions, parse_sink, parse_source
from pyspark_log.sink.writer import BatchWriter
from pyspark_log.source.readers import BatchReader

BESIDE = ".memory"
"""What the name of the log is followed by in the name of the folder with the measurements."""


class MeasuredSource(DefaultSource):
    @classmethod
    def name(cls) -> str:
        return "pyspark_log_measured"

    def reader(self, schema: StructType) -> BatchReader:
        return MeasuredReader(schema, parse_source(self.options, streaming=False))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return MeasuredWriter(schema, parse_sink(self.options, streaming=False))


class MeasuredReader(BatchReader):
    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        super().__init__(schema, options)
        self._path = options.path  # tasks do not get the options

    def read(self, partition: Any) -> Iterator[Any]:
        with measured(self._path, "read"):
            yield from super().read(partition)


class MeasuredWriter(BatchWriter):
    def write(self, iterator: Iterator[Any]) -> Any:
        with measured(self.options.path, "write"):
            return super().write(iterator)


@contextmanager
def measured(path: str, what: str) -> Iterator[None]:
    """Write down VmHWM, counted from here: a worker has done other tasks before."""
    Path("/proc/self/clear_refs").write_text("5")
    yield
    status = Path("/proc/self/status").read_text()
    mib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024
    folder = Path(path + BESIDE)
    folder.mkdir(exist_ok=True)
    (folder / f"{what}-{os.getpid()}-{os.urandom(4).hex()}").write_text(json.dumps(mib))


def measurements(path: str, what: str) -> list[float]:
    """The MiB of every task that read or wrote the log at `path`."""
    return [json.loads(each.read_text()) for each in Path(path + BESIDE).glob(f"{what}-*")]
