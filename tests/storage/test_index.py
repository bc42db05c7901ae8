"""The index: it finds what a search of all entries would find, from few blocks, and says when it is damaged."""

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_storage.errors import CorruptObject, NewerFormat
from pyspark_log_storage.files import index
from pyspark_log_storage.files.index import BLOCK_ENTRIES, Index, IndexEntry
from tests.support.counting_store import CountingStore
from tests.support.memory_store import MemoryStore

KEY = "t/0/a.index"
BASE = 1000


def entries_of(chunks, base=BASE):
    """Return the entries of chunks of so many rows, with such smallest and largest timestamps."""
    made, position = [], 64
    for number, (rows, low, high) in enumerate(chunks):
        length = 64 * (1 + number % 5)
        made.append(IndexEntry(base, rows, position, length, number // 7, number % 2, low, high, number * 31))
        base += rows
        position += length
    return made


def stored(entries, store=None):
    """Return the index of the entries, as it is opened anew."""
    store = store or MemoryStore("the url")
    store.put(KEY, index.encode(KEY, entries))
    return Index(store, KEY)


def even(count):
    """Return entries of ten rows each, whose timestamps rise by ten."""
    return entries_of([(10, number * 10, number * 10 + 9) for number in range(count)])


chunks = st.lists(
    st.tuples(st.integers(1, 50), st.integers(-30, 30), st.integers(0, 20)).map(lambda c: (c[0], c[1], c[1] + c[2])),
    min_size=1,
    max_size=3 * BLOCK_ENTRIES,
)


@given(chunks)
def test_what_is_encoded_is_read_back(made):
    entries = entries_of(made)
    found = stored(entries)
    assert found.read(0, len(entries) - 1) == entries
    assert (found.base_offset, found.end_offset) == (BASE, entries[-1].end_offset)
    assert found.entries == len(entries)


@given(
    st.lists(
        st.tuples(st.integers(1, 2**30), st.integers(1, 2**32 - 1), st.integers(-(2**63), 2**63 - 1)),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 2**62),
)
def test_the_largest_and_smallest_numbers_come_back(made, position):
    entries, base = [], 2**62
    for rows, word, time in made:
        entries.append(IndexEntry(base, rows, position, word, word, word, time, time, word))
        base += rows
        position += word
    store = MemoryStore()
    store.put(KEY, index.encode(KEY, entries))
    assert Index(store, KEY).read(0, len(entries) - 1) == entries


@given(chunks, st.data())
def test_an_offset_and_a_time_are_found_as_a_linear_search_finds_them(made, data):
    entries = entries_of(made)
    offset, time = data.draw(st.integers(BASE, entries[-1].end_offset - 1)), data.draw(st.integers(-40, 60))
    expected = next(number for number, each in enumerate(entries) if each.base_offset <= offset < each.end_offset)
    assert stored(entries).find_offset(offset) == expected
    expected = next((number for number, each in enumerate(entries) if each.max_timestamp >= time), None)
    assert stored(entries).find_time(time) == expected


def test_every_offset_and_time_is_found_at_the_bounds_of_blocks():
    for count in (1, BLOCK_ENTRIES, 2 * BLOCK_ENTRIES + 1):
        found = stored(even(count))
        for number in range(count):
            assert found.find_offset(BASE + number * 10) == found.find_offset(BASE + number * 10 + 9) == number
            assert found.find_time(number * 10) == found.find_time(number * 10 + 9) == number
        assert found.find_time(count * 10) is None
        assert found.find_time(-(2**63)) == 0


@pytest.mark.parametrize("find", ["find_offset", "find_time"])
def test_one_lookup_among_ten_thousand_chunks_reads_the_blocks_of_a_bisection_and_each_once(find):
    store = CountingStore()
    stored(even(10_000), store)
    for wanted in (BASE, BASE + 12_345, BASE + 99_999):
        store.forget()
        found = Index(store, KEY)
        number = getattr(found, find)(wanted)
        assert store.reads <= 10  # the header, and the blocks of a bisection of 129
        assert store.received <= index.HEADER_BYTES + store.reads * index.BLOCK_BYTES
        store.forget()
        assert getattr(found, find)(wanted) == number
        assert store.reads == 0


def test_a_scan_reads_only_the_blocks_of_its_range_and_none_twice():
    store = CountingStore()
    entries = even(40 * BLOCK_ENTRIES)
    found = stored(entries, store)
    found.read(20 * BLOCK_ENTRIES, 20 * BLOCK_ENTRIES)
    store.forget()
    first, last = 10 * BLOCK_ENTRIES + 5, 38 * BLOCK_ENTRIES + 5
    assert found.read(first, last) == entries[first : last + 1]
    assert store.received == 28 * index.BLOCK_BYTES
    assert store.reads == 3  # 10 to 19, 21 to 36, 37 and 38
    store.forget()
    assert found.read(first, last) == entries[first : last + 1]
    assert store.reads == 0


def test_a_time_is_found_in_an_early_block_if_later_rows_are_older():
    found = stored(entries_of([(10, -number, -number) for number in range(5 * BLOCK_ENTRIES)]))
    assert [found.find_time(time) for time in (1, 0, -1, 2 - 5 * BLOCK_ENTRIES)] == [None, 0, 0, 0]


def with_checksum(fields):
    """Return the fields of a header with the checksum that belongs to them."""
    return fields + google_crc32c.value(fields).to_bytes(4, "little")


def every_answer(store):
    """Return all that an index can say."""
    found = Index(store, KEY)
    entries = found.read(0, found.entries - 1)
    ends = found.base_offset, found.end_offset, found.log_bytes, found.entries
    return entries, ends, [found.find_time(time) for time in range(-1, 25)], found.find_offset(BASE)


def test_every_flipped_byte_and_every_cut_is_an_error():
    store = MemoryStore("the url")
    stored(even(2), store)
    whole = store.read(KEY)
    for place in [*range(180), *range(180, len(whole), 16), len(whole) - 1]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        for data, why in ((damaged, f"the url/{KEY}"), (whole[:place], "ends")):
            store.put(KEY, data)
            with pytest.raises(CorruptObject, match=why):
                every_answer(store)


def block_at(number):
    return slice(index.HEADER_BYTES + number * index.BLOCK_BYTES, index.HEADER_BYTES + (number + 1) * index.BLOCK_BYTES)


def test_two_blocks_that_were_swapped_are_an_error():
    store = MemoryStore("the url")
    stored(even(3 * BLOCK_ENTRIES), store)
    data = bytearray(store.read(KEY))
    data[block_at(0)], data[block_at(2)] = data[block_at(2)], data[block_at(0)]
    store.put(KEY, bytes(data))
    for number in (0, 2):
        with pytest.raises(CorruptObject, match=f"the checksum of block {number} does not match"):
            Index(store, KEY).read(number * BLOCK_ENTRIES, number * BLOCK_ENTRIES)


def test_a_block_of_another_index_in_the_same_place_is_an_error():
    store = MemoryStore("the url")
    stored(entries_of([(10, 0, 1)] * (2 * BLOCK_ENTRIES)), store)
    other = store.read(KEY)
    stored(entries_of([(20, 0, 1)] * (2 * BLOCK_ENTRIES)), store)
    mixed = bytearray(store.read(KEY))
    mixed[block_at(1)] = other[block_at(1)]
    store.put(KEY, bytes(mixed))
    with pytest.raises(CorruptObject, match="block 1"):
        Index(store, KEY).find_offset(BASE + 30 * BLOCK_ENTRIES)


def test_a_newer_index_and_another_object_are_distinguished_from_a_damaged_one():
    store = MemoryStore("the url")
    stored(even(1), store)
    whole = store.read(KEY)
    store.put(KEY, with_checksum(whole[:4] + b"\2\0" + whole[6:60]) + whole[64:])
    with pytest.raises(NewerFormat, match="index format 2"):
        Index(store, KEY)
    store.put(KEY, with_checksum(b"PLSG" + whole[4:60]) + whole[64:])
    with pytest.raises(CorruptObject, match="PLIX"):
        Index(store, KEY)
