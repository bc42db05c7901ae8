"""Reading ahead returns the same bytes as the store, in few reads."""

import random

import pytest

from pyspark_log_storage.errors import ObjectMissing
from pyspark_log_storage.segments import transfer
from pyspark_log_storage.segments.transfer import ReadAhead
from tests.support.counting_store import CountingStore


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(transfer, "RANGE_BYTES", 100)
    store = CountingStore()
    for key in ("a", "b"):
        store.create(key, random.Random(key).randbytes(1_050))
    return store


def test_a_walk_over_small_pieces_reads_large_ranges(store):
    ahead = ReadAhead(store)
    found = b"".join(ahead.read("a", at, 10) for at in range(0, 1_100, 10))
    assert found == store.read("a")
    assert store.reads < 20
    assert ahead.size("a") == 1_050


def test_any_ranges_of_any_objects_have_the_bytes_of_the_store(store):
    ahead, dice = ReadAhead(store), random.Random(1)
    for _ in range(500):
        key, start, length = dice.choice("ab"), dice.randrange(1_200), dice.choice([None, dice.randrange(300)])
        assert ahead.read(key, start, length) == store.read(key, start, length), (key, start, length)
    with pytest.raises(ObjectMissing):
        ahead.read("c", 0, 1)
