"""A log in S3, on Ceph's server on this machine: rates beside a plain copy of the same bytes, latency, requests.

The plain copy is s3fs's own, of as many bytes as the product stored, by one thread. Server, client and product share
the machine's cores, so the rates are low; the ratio is what counts.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.report import Line, at_least, at_most
from pyspark_log.opening import own_log
from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.planning import Range, split_of
from pyspark_log.writing.destination import destination_of
from pyspark_log.writing.rows import rows_of
from pyspark_log.writing.staging import Staging
from pyspark_log_coordinator.commit.commit import commit_staged
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_storage.stores.request_counts import counts_of
from pyspark_log_storage.stores.storage_options import StorageOptions
from tests.servers import ceph
from tests.servers.running import Server, ceph_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark_log_coordinator.log.log import Log

BATCH_ROWS = 50_000
VALUE_BYTES = 100
MEGA, MILLI = 1_000_000, 1_000
LATENCY_BATCHES = 20
COPY_TARGET = 0.7
REQUESTS_TARGET = 4


def measure_s3(folder: Path, rows: int, runs: int, log: Callable[[str], object]) -> list[Line]:
    """Return the lines about a topic of one partition in S3, or none if the server is not installed."""
    if why := ceph.why_not():
        log(f"s3: {why}")
        return []
    server = ceph_in(folder / "ceph")
    log(f"s3: {rows:,} rows, {runs} runs")
    found = [_Bucket(server, rows).measured() for _ in range(runs)]
    medians = (statistics.median(each) for each in zip(*found, strict=True))
    write, read, plain_write, plain_read, millis, requests = medians
    target, few = at_least(COPY_TARGET), at_most(REQUESTS_TARGET, "requests")
    return [
        Line("write to S3, one task", "M rows/s", write, plain_write, write / plain_write, target=target),
        Line("read from S3, one task", "M rows/s", read, plain_read, read / plain_read, target=target),
        Line("requests of a micro-batch of one task in S3", "requests", requests, target=few),
        Line("micro-batch of 1,000 rows in S3, without Spark", "ms", millis),
    ]


class _Bucket:
    """A log in a bucket of its own."""

    def __init__(self, server: Server, rows: int) -> None:
        self._server, self._rows = server, rows
        self._bucket = server.new_bucket()
        self._url = f"s3://{self._bucket}/log"
        self._log: Log = own_log(self._url, StorageOptions.given(server.options))
        self._log.open(create=True)
        self._log.create_topic("t", 1)
        chance = random.Random(1)
        keys = [b"key-%d" % chance.randrange(1_000_003) for _ in range(BATCH_ROWS)]
        values = [chance.randbytes(VALUE_BYTES // 2).hex().encode() for _ in range(BATCH_ROWS)]
        self._batch = pa.RecordBatch.from_pydict({"key": keys, "value": values})

    def measured(self) -> tuple[float, float, float, float, float, float]:
        """Return the rates of write and read, those of plain copies in M rows/s, ms of a small batch, its requests."""
        counts = counts_of(self._url)
        self._write(self._batch, 1)
        begun, sent = time.perf_counter(), counts.total().sent
        self._write(self._batch, self._rows // BATCH_ROWS)
        written, size = time.perf_counter() - begun, counts.total().sent - sent
        begun = time.perf_counter()
        handle = self._log.topic("t")
        part = Range("t", 0, BATCH_ROWS, BATCH_ROWS + self._rows // BATCH_ROWS * BATCH_ROWS)
        read = sum(batch.num_rows for _, batch in fetch(self._log.store_at, split_of(handle, part)))
        seconds = time.perf_counter() - begun
        assert read == part.end - part.start
        plain_write, plain_read = self._plain(os.urandom(size))
        small, spent, made = self._batch.slice(0, 1000), [], []
        for _ in range(LATENCY_BATCHES):
            begun, before = time.perf_counter(), counts.total().number
            self._write(small, 1)
            spent.append(time.perf_counter() - begun)
            made.append(counts.total().number - before)
        requests = statistics.median(made)  # some have maintenance in them
        rates = (read / each / MEGA for each in (written, seconds, plain_write, plain_read))
        w, r, pw, pr = rates
        return w, r, pw, pr, statistics.median(spent) * MILLI, requests

    def _write(self, batch: pa.RecordBatch, times: int) -> None:
        handle = self._log.topic("t", recent_suffices=True)
        destination = destination_of(handle, None, handle.journal.state.config.max_message_bytes, "all")
        environment = self._log.environment
        staging = Staging(
            self._log.store_at, lambda _: destination, "t", environment=environment, durable=True, sticky=0
        )
        for _ in range(times):
            staging.add(rows_of(batch, now_us=time.time_ns() // 1000, by_topic_column=False))
        commit_staged(self._log, [staging.finish()], None, "all", RetryPolicy(), None)

    def _plain(self, data: bytes) -> tuple[float, float]:
        """Return the seconds in which s3fs writes and reads these bytes."""
        import s3fs

        fs = s3fs.S3FileSystem(**self._server.options)
        begun = time.perf_counter()
        with fs.open(f"{self._bucket}/plain", "wb") as file:
            file.write(data)
        written = time.perf_counter() - begun
        begun = time.perf_counter()
        assert len(fs.cat_file(f"{self._bucket}/plain")) == len(data)
        return written, time.perf_counter() - begun
