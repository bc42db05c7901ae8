"""A process of its own that writes or reads many rows, as a task does, and prints the most memory that it used.

memory_worker.py write <path> <topic> <rows>
memory_worker.py read <path> <topic>
"""

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from pyspark_log.reading.arrow_rows import COLUMNS, record_rows, record_schema
from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.planning import Range, split_of
from pyspark_log.writing.destination import destination_of
from pyspark_log.writing.rows import rows_of
from pyspark_log.writing.staging import RetryingStaging, Staging
from pyspark_log_coordinator.commit.commit import commit_staged
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_storage.stores.addresses import open_store

BATCH_ROWS = 10_000
VALUE_BYTES = 90


def batches(count):
    """Rows of about 100 bytes, in batches as Spark hands them over."""
    dice = np.random.default_rng(1)
    for first in range(0, count, BATCH_ROWS):
        size = min(BATCH_ROWS, count - first)
        keys = pa.array(np.arange(first, first + size) + 10**9).cast(pa.string()).cast(pa.binary())
        noise = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(VALUE_BYTES), size, [None, pa.py_buffer(dice.bytes(size * VALUE_BYTES))]
        )
        values = noise.cast(pa.binary())
        yield pa.RecordBatch.from_arrays([keys, values], ["key", "value"])


def write(log, topic, count):
    handle = log.topic(topic)

    def begin(*, again):
        assert not again, "nothing fails here"
        destination = destination_of(handle, None, 10**6)
        return Staging(log.store_at, lambda _: destination, topic, environment=log.environment, durable=True, sticky=0)

    staging = RetryingStaging(begin, log.environment, RetryPolicy(retries=0))
    for batch in batches(count):
        staging.add(rows_of(batch, now_us=0, by_topic_column=False))
    commit_staged(log, [staging.finish()], None, "all", RetryPolicy(), None)
    return count


def read(log, topic):
    handle, found = log.topic(topic), 0
    columns = record_schema(tuple(COLUMNS))
    for number, partition in enumerate(handle.journal.state.partitions):
        if partition.high_watermark:
            split = split_of(handle, Range(topic, number, 0, partition.high_watermark))
            for offset, record in fetch(log.store_at, split):
                found += record_rows(record, columns, topic, number, offset).num_rows
    return found


def most_memory():
    """VmHWM in MiB."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    import pyspark.sql  # noqa: F401 -- a worker has it too

    what, path, name, *number = sys.argv[1:]
    opened = Log(open_store(path), real_environment())
    opened.open(create=False)
    done = write(opened, name, int(number[0])) if what == "write" else read(opened, name)
    print(json.dumps({"rows": done, "mib": most_memory()}))
