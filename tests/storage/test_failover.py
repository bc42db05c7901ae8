"""The loop that reads from the first copy that can be read."""

import pytest

from pyspark_log_storage.errors import CorruptObject, NewerFormat, ObjectMissing, StoreUnavailable
from pyspark_log_storage.stores.failover import AllCopiesFailed, first_readable, reread, rereads, stop_unless_damaged
from tests.support.counted_bucket import CountedBucket
from tests.support.memory_store import MemoryStore

DAMAGED = CorruptObject("a", "a bit is flipped")
MISSING = ObjectMissing("/b", "key")
SILENT = StoreUnavailable("/c", "key", "no answer")


def read(copy):
    """Raise the copy if it is an error, else return it."""
    if isinstance(copy, Exception):
        raise copy
    return copy


def test_the_first_copy_that_can_be_read_is_returned_and_no_later_one_is_read():
    tried = []

    def note(copy):
        tried.append(copy)
        return read(copy)

    copies = [DAMAGED, MISSING, SILENT, "good", "unread"]
    assert first_readable(copies, note, lambda _, error: tried.append(("failed", error))) == "good"
    assert tried == [each for bad in copies[:3] for each in (bad, ("failed", bad))] + ["good"]


def test_all_errors_are_raised_in_the_order_of_the_copies():
    with pytest.raises(AllCopiesFailed) as failed:
        first_readable([SILENT, DAMAGED], read)
    assert list(failed.value.errors.values()) == [SILENT, DAMAGED]
    assert failed.value.first_or(MISSING) is SILENT
    with pytest.raises(AllCopiesFailed) as failed:
        first_readable([], read)
    assert failed.value.first_or(MISSING) is MISSING, "without copies the caller names the error"


def test_other_errors_are_no_reason_to_read_another_copy():
    with pytest.raises(NewerFormat):
        first_readable([NewerFormat("a", "version 9"), "good"], read)


def test_a_damaged_or_missing_copy_is_skipped_if_only_these_may_be():
    assert first_readable([DAMAGED, MISSING, "good"], read, stop_unless_damaged) == "good"
    with pytest.raises(StoreUnavailable):
        first_readable([SILENT, "good"], read, stop_unless_damaged)


@pytest.mark.parametrize(("store", "calls"), [(MemoryStore(), 1), (CountedBucket(), 2)])
def test_what_an_object_store_answers_counts_as_damaged_the_second_time(store, calls):
    made = []

    @rereads
    def check(_store, *answers, named):
        made.append(named)
        return read(answers[len(made) - 1])

    with pytest.raises(CorruptObject):
        check(store, DAMAGED, DAMAGED, "never read", named="it")
    assert made == ["it"] * calls
    answers = iter([DAMAGED, "good"])
    if calls == 2:
        assert reread(store, lambda: read(next(answers))) == "good"
    with pytest.raises(StoreUnavailable):
        reread(store, lambda: read(next(iter([SILENT, "good"]))))
