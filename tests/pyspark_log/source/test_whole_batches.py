"""A reader sees a micro-batch in all partitions of a topic or in none, even while it is written."""

import itertools
import threading
import time

import pytest

from pyspark_log.opening import open_log
from pyspark_log_storage.stores.store import is_object_store
from tests.support.direct import Stream, read, values
from tests.support.plain_log import PlainLog

PARTITIONS = 5
READS = 15
WRITE_AT_EVERY = 2
DEADLINE_SECONDS = 60


class Writer:
    """Writes micro-batches that each put their number into every partition."""

    def __init__(self, path):
        self._log = PlainLog(path)
        self.written = 0

    def write(self):
        self._log.append("t", {p: [b"%d" % self.written] * (p + 1) for p in range(PARTITIONS)})
        self.written += 1


class BusyWriter(Writer):
    """Writes in a thread until the end of the block."""

    def _run(self):
        while not self._stop_asked.is_set():
            self.write()

    def __enter__(self):
        self._stop_asked = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop_asked.set()
        self._thread.join()

    def wait_for(self, count):
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.written < count:
            assert time.monotonic() < deadline, "the writer does not get on"
            time.sleep(0.001)


@pytest.fixture
def interrupting(path, monkeypatch):
    """A writer that commits a batch at every second look of the reader at the topic's journal, in a bucket: list."""
    writer, store, looks = Writer(path), open_log(str(path)).store, itertools.count(1)

    def after_a_write(look):
        def looked(key, *args):
            if "/t/" in key and "/journal/" in key and next(looks) % WRITE_AT_EVERY == 0:
                writer.write()
            return look(key, *args)

        return looked

    for name in ("list",) if is_object_store(store) else ("read",):
        monkeypatch.setattr(store, name, after_a_write(getattr(store, name)))
    return writer


@pytest.fixture
def path(root):
    PlainLog(root / "log").create("t", PARTITIONS)
    return root / "log"


def assert_whole(by_partition):
    """Each partition has the same batches; partition p has p + 1 rows of each, in order."""
    batches = sorted({int(value) for found in by_partition.values() for value in found})
    expected = {p: [b"%d" % batch for batch in batches for _ in range(p + 1)] for p in range(PARTITIONS)}
    assert by_partition == (expected if batches else {})
    return batches


def assert_batches_of_a_read(by_partition):
    batches = assert_whole(by_partition)
    assert batches == list(range(len(batches)))
    return len(batches)


def test_a_batch_read_sees_whole_batches_though_writes_come_between_its_steps(path, interrupting):
    counts = [assert_batches_of_a_read(values(read(path, subscribe="t"))) for _ in range(READS)]
    assert len(set(counts)) > READS // 2, counts


def test_a_stream_sees_whole_batches_though_writes_come_between_its_steps(path, interrupting):
    stream, so_far = Stream(path, subscribe="t", startingOffsets="earliest"), 0
    for _ in range(READS):
        batches = assert_whole(values(stream.batch() or []))
        assert batches == list(range(so_far, so_far + len(batches)))
        so_far += len(batches)
    assert so_far > READS // 2
    assert interrupting.written >= so_far


def test_a_reader_sees_whole_batches_of_a_busy_writer(path):
    seen = set()
    with BusyWriter(path) as writer:
        for _ in range(READS):
            writer.wait_for(max(seen, default=0) + 1)
            seen.add(assert_batches_of_a_read(values(read(path, subscribe="t"))))
    assert len(seen) == READS
