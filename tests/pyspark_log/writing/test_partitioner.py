import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log.writing import partitioner
from pyspark_log.writing.partitioner import group_by_partition, murmur2, partition_of
from pyspark_log_storage.errors import InvalidRecord

KAFKAS_ANSWERS = {  # org.apache.kafka.common.utils.UtilsTest.testMurmur2
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}

key_lists = st.one_of(
    st.lists(st.none() | st.binary(max_size=50), max_size=60),
    st.integers(0, 40).flatmap(lambda n: st.lists(st.binary(min_size=n, max_size=n), max_size=30)),
    st.lists(st.binary(min_size=200, max_size=400), max_size=8),
)


def plain_murmur2(key):
    """Kafka's Java, line by line."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    if len(key) > whole:
        h = (h ^ int.from_bytes(key[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def plain_partition(key, explicit, partitions, sticky):
    if explicit is not None:
        return explicit
    return sticky if key is None else (plain_murmur2(key) & 0x7FFFFFFF) % partitions


def assert_hashes(keys):
    hashes = murmur2(keys)
    assert hashes.dtype == np.int32
    assert len(hashes) == len(keys)
    for key, got in zip(keys.cast(pa.binary()).to_pylist(), hashes.tolist(), strict=True):
        assert key is None or got == plain_murmur2(key)


@pytest.mark.parametrize("arrow_type", [pa.binary(), pa.string()], ids=str)
def test_the_hashes_are_kafkas(arrow_type):
    keys = pa.array(list(KAFKAS_ANSWERS), pa.binary()).cast(arrow_type)
    assert murmur2(keys).tolist() == list(KAFKAS_ANSWERS.values())
    for key, answer in KAFKAS_ANSWERS.items():
        assert murmur2(pa.array([key] * 3, pa.binary()).cast(arrow_type)).tolist() == [answer] * 3
        assert plain_murmur2(key) == answer


@given(key_lists, st.integers(0, 60), st.integers(0, 60))
def test_any_keys_hash_as_one_by_one_also_in_a_slice(keys, first, length):
    assert_hashes(pa.array(keys, pa.binary()).slice(first, length))


@given(st.lists(st.binary(max_size=600), min_size=1, max_size=40), st.integers(1, 7), st.integers(1, 1000))
def test_the_size_of_a_block_changes_nothing(keys, rows_max, bytes_max):
    with pytest.MonkeyPatch.context() as limits:
        limits.setattr(partitioner, "BLOCK_ROWS_MAX", rows_max)
        limits.setattr(partitioner, "BLOCK_BYTES_MAX", bytes_max)
        assert_hashes(pa.array(keys, pa.binary()))


def test_a_null_that_hides_bytes_does_not_shift_the_keys_after_it():
    hidden = pa.array([b"ab", b"foobar", b"21"], pa.binary())
    mask = pa.py_buffer(bytes([0b101]))
    keys = pa.Array.from_buffers(pa.binary(), 3, [mask, *hidden.buffers()[1:]])
    assert keys.to_pylist() == [b"ab", None, b"21"]
    assert_hashes(keys)


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=20), st.none() | st.integers(0, 6)), min_size=1, max_size=50),
    st.sampled_from([7, 8, 300]),
    st.integers(0, 6),
    st.integers(0, 50),
)
def test_explicit_before_key_before_sticky(rows, partitions, sticky, first):
    keys = pa.array([key for key, _ in rows], pa.binary()).slice(first)
    explicit = pa.array([partition for _, partition in rows], pa.int32()).slice(first)
    ids = partition_of(keys, explicit, partitions, sticky)
    assert ids.dtype == np.int32
    assert ids.tolist() == [plain_partition(k, p, partitions, sticky) for k, p in rows[first:]]
    without = partition_of(keys, None, partitions, sticky)
    assert without.tolist() == [plain_partition(k, None, partitions, sticky) for k, _ in rows[first:]]


@pytest.mark.parametrize("wrong", [-1, 4, 2**31 - 1])
def test_an_explicit_partition_that_does_not_exist_is_refused(wrong):
    with pytest.raises(InvalidRecord, match=rf"partition {wrong}\b.* partitions 0 to 3"):
        partition_of(pa.nulls(3), pa.array([0, None, wrong], pa.int32()), 4, 0)


@given(st.sampled_from([1, 3, 256, 257, 65_537]), st.data())
def test_rows_are_grouped_by_partition_and_keep_their_order(partitions, data):
    ids = data.draw(st.lists(st.integers(0, partitions - 1), max_size=60))
    order, bounds = group_by_partition(np.array(ids, np.int32), partitions)
    assert len(bounds) == partitions + 1
    for partition in {*ids, 0, partitions - 1}:
        rows = order[bounds[partition] : bounds[partition + 1]].tolist()
        assert rows == [row for row, of in enumerate(ids) if of == partition]
