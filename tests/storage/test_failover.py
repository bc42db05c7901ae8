"""The loop that reads from the first copy that can be read."""

import pytest

from pyspark_log_storage.errors import CorruptObject, NewerFormat, ObjectMissing, StoreUnavailable
from pyspark_log_storage.stores.failover import AllCopiesFailed, first_readable, stop_unless_damaged

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

    assert first_readable([DAMAGED, "good", "unread"], note) == "good"
    assert tried == [DAMAGED, "good"]


def test_each_failure_is_reported_before_the_next_copy_is_read():
    failures = []
    copies = [DAMAGED, MISSING, SILENT, "good"]
    assert first_readable(copies, read, lambda copy, error: failures.append((copy, error))) == "good"
    assert failures == [(each, each) for each in (DAMAGED, MISSING, SILENT)]


def test_all_errors_are_raised_in_the_order_of_the_copies():
    with pytest.raises(AllCopiesFailed) as failed:
        first_readable([SILENT, DAMAGED], read)
    assert list(failed.value.errors.values()) == [SILENT, DAMAGED]
    assert failed.value.first_or(MISSING) is SILENT


def test_without_copies_the_caller_names_the_error():
    with pytest.raises(AllCopiesFailed) as failed:
        first_readable([], read)
    assert failed.value.first_or(MISSING) is MISSING


def test_other_errors_are_no_reason_to_read_another_copy():
    with pytest.raises(NewerFormat):
        first_readable([NewerFormat("a", "version 9"), "good"], read)


@pytest.mark.parametrize("error", [DAMAGED, MISSING])
def test_a_damaged_or_missing_copy_is_skipped_if_only_these_may_be(error):
    assert first_readable([error, "good"], read, stop_unless_damaged) == "good"


def test_a_silent_store_stops_a_read_that_skips_only_damage():
    with pytest.raises(StoreUnavailable):
        first_readable([SILENT, "good"], read, stop_unless_damaged)
