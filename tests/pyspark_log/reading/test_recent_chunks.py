"""The cache of decoded chunks stays small."""

import pyarrow as pa

from pyspark_log.reading.fetch import RecentChunks


def batch(number):
    return pa.record_batch([pa.array([number] * 100, pa.int64())], names=["n"])


def test_a_taken_chunk_is_removed():
    recent = RecentChunks()
    recent.keep("a", batch(1))
    assert recent.take("a") == batch(1)
    assert recent.take("a") is None


def test_the_least_recently_kept_chunks_are_evicted():
    recent = RecentChunks(bytes_max=2 * batch(0).nbytes)
    for number in range(3):
        recent.keep(number, batch(number))
    recent.keep(1, batch(1))
    recent.keep(3, batch(3))
    assert [number for number in range(4) if recent.take(number) is not None] == [1, 3]
    for number in range(4):
        recent.keep(number, batch(number))
    assert [number for number in range(4) if recent.take(number) is not None] == [2, 3]


def test_a_chunk_larger_than_the_limit_is_not_kept_and_evicts_nothing():
    recent = RecentChunks(bytes_max=batch(0).nbytes)
    recent.keep("small", batch(0))
    recent.keep("large", pa.concat_batches([batch(0), batch(1)]))
    assert recent.take("large") is None
    assert recent.take("small") is not None
