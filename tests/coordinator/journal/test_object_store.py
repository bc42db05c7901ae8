"""A journal in an object store: one list tells where it ends, and there are no spares."""

import pytest

from tests.coordinator.item_list import open_list
from tests.coordinator.journal_objects import ENTRIES, add, fill
from tests.coordinator.spares import is_spare
from tests.memory_store import MemoryStore

pytestmark = pytest.mark.usefixtures("snapshots_are_close")


class Bucket(MemoryStore):
    """An object store that counts its requests."""

    is_object_store = True

    def __init__(self):
        super().__init__()
        self.requests = []

    def list(self, prefix, after=""):
        self.requests.append("list")
        yield from super().list(prefix, after)

    def read(self, key, start=0, length=None):
        self.requests.append("read")
        return super().read(key, start, length)

    def exists(self, key):
        self.requests.append("exists")
        return super().exists(key)


@pytest.fixture
def bucket():
    return Bucket()


def test_a_look_that_finds_nothing_is_one_list(bucket):
    journal = open_list(bucket)
    fill(journal, 6)
    bucket.requests.clear()
    journal.refresh()
    assert bucket.requests == ["list"]


def test_a_look_that_finds_entries_is_one_list_and_a_read_of_each(bucket):
    journal, other = open_list(bucket), open_list(bucket)
    fill(journal, 6)
    other.refresh()
    for number in range(3):
        add(journal, f"more-{number}")
    bucket.requests.clear()
    assert other.refresh() == journal.state
    assert bucket.requests == ["list", "read", "read", "read"]


def test_a_snapshot_after_the_newest_known_entry_is_noticed_if_no_entry_is_left(bucket):
    journal, sleeper = open_list(bucket), open_list(bucket)
    fill(journal, 5)
    sleeper.refresh()
    fill(journal, 5)
    journal.create_snapshot()
    for key in list(bucket.list(ENTRIES)):
        bucket.delete(key)
    assert sleeper.refresh() == journal.state


def test_there_are_no_spares(bucket):
    fill(open_list(bucket), 10)
    assert not [key for key in bucket.list("") if is_spare(key)]
