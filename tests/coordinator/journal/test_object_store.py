"""A journal in an object store: one list tells where it ends."""

import threading
from collections import Counter

import pytest

from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.item_list import open_list
from tests.support.coordinator.journal_objects import ENTRIES, EVERY, add, fill
from tests.support.counted_bucket import CountedBucket
from tests.support.memory_store import MemoryStore

pytestmark = pytest.mark.usefixtures("snapshots_are_close")


class Bucket(CountedBucket):
    """Readers of an entry wait there for each other, if there is a `meeting`."""

    meeting = None

    def read(self, key, start=0, length=None):
        if self.meeting is not None and key.startswith(ENTRIES):
            self.meeting.wait()
        return super().read(key, start, length)


@pytest.fixture
def bucket():
    return Bucket()


def test_a_look_is_one_list_and_a_read_of_each_entry(bucket):
    journal, other = open_list(bucket), open_list(bucket)
    fill(journal, 6)
    other.refresh()
    for number in range(3):
        add(journal, f"more-{number}")
    for reads in (3, 0):
        bucket.requests.clear()
        assert other.refresh() == journal.state
        assert bucket.requests == Counter(LIST=1, GET=reads)


def test_the_entries_after_a_snapshot_are_read_at_once(bucket):
    fill(open_list(bucket), EVERY + 3)
    bucket.meeting = threading.Barrier(3, timeout=60)
    assert len(open_list(bucket).refresh().items) == EVERY + 3


def test_a_process_that_polls_asks_for_the_next_entry_by_name_and_finds_what_others_have_written(bucket):
    journal, other = open_list(bucket), open_list(bucket)
    fill(journal, 6)
    other.refresh()
    bucket.requests.clear()
    assert [other.refresh(polls=True) for _ in range(3)] == [journal.state] * 3
    assert bucket.requests == Counter(HEAD=3)
    add(journal, "more")
    assert other.refresh(polls=True) == journal.state


@pytest.mark.parametrize(("kind", "seconds"), [(Bucket, 60), (MemoryStore, 1)])
def test_a_process_that_polls_and_slept_past_trimming_finds_the_newest_state_soon_on_a_disk_sooner(kind, seconds):
    store, environment = kind(), fake_environment()
    journal, sleeper = open_list(store), open_list(store, environment)
    fill(journal, 5)
    sleeper.refresh()
    fill(journal, 5)
    journal.create_snapshot()
    for key in list(store.list(ENTRIES)):
        store.delete(key)
    environment.sleep(seconds - 0.1)
    assert sleeper.refresh(polls=True) != journal.state, "it shows what it knows"
    environment.sleep(0.1)
    assert sleeper.refresh(polls=True) == journal.state
