"""The index: it finds what a search of all entries would find, and says when it is damaged."""

from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_storage.files import index
from pyspark_log_storage.files.index import IndexEntry
from tests.support.counting_store import CountingStore
from tests.support.memory_store import MemoryStore

KEY = "t/0/a"
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
    """Return a store with the index of the entries."""
    store = store or MemoryStore("the url")
    store.put(f"{KEY}.index", index.encode(KEY, entries))
    return store


chunks = st.lists(
    st.tuples(st.integers(1, 50), st.integers(-30, 30), st.integers(0, 20)).map(lambda c: (c[0], c[1], c[1] + c[2])),
    min_size=1,
    max_size=99,
)


@given(
    st.lists(
        st.tuples(st.integers(1, 2**30), st.integers(1, 2**32 - 1), st.integers(-(2**63), 2**63 - 1)),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 2**62),
)
def test_what_is_encoded_is_read_back_up_to_the_largest_numbers(made, position):
    entries, base = [], 2**62
    for rows, word, time in made:
        entries.append(IndexEntry(base, rows, position, word, word, word, time, time, word))
        base += rows
        position += word
    assert index.read(stored(entries), KEY) == entries


@given(chunks, st.data())
def test_offsets_and_a_time_are_found_as_a_linear_search_finds_them(made, data):
    entries = entries_of(made)
    start, end = (data.draw(st.integers(BASE - 9, entries[-1].end_offset + 9)) for _ in "ab")
    expected = [each for each in entries if any(start <= row < end for row in range(each.base_offset, each.end_offset))]
    assert index.between(index.table(stored(entries), KEY), start, end) == expected
    time = data.draw(st.integers(-40, 60))
    first = next((each for each in entries if each.max_timestamp >= time), None)
    assert index.first_reaching(index.table(stored(entries), KEY), time) == first


def test_a_look_up_is_one_read():
    store = stored(entries_of([(10, 0, 9)] * 100), CountingStore())
    store.forget()
    index.read(store, KEY)
    assert store.reads == 1
