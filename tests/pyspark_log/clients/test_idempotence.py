"""A batch is in the log once, whatever the store answers and whenever the producer dies."""

import pytest

from pyspark_log_storage.errors import OutcomeUnknown, StoreRefused, StoreUnavailable

PATIENCE = 200
"""More answers than a journal waits for in its two minutes."""
LONG = 600_000


@pytest.mark.parametrize("first_attempt", ["lose_answers", "be_silent"])
def test_a_batch_whose_outcome_is_unknown_is_repeated_and_counts_once(cluster, first_attempt):
    with cluster.producer(delivery_timeout_ms=LONG) as (producer, store):
        getattr(store, first_attempt)(cluster.entries, times=PATIENCE)
        assert producer.send("t", b"second").result(60)[:3] == ("t", 0, 1)
        assert producer.send("t", b"third").result(60).offset == 2
    assert cluster.values() == [b"first", b"second", b"third"]


def test_without_idempotence_an_unknown_outcome_is_an_error_and_nothing_is_repeated(cluster):
    with cluster.producer(enable_idempotence=False, delivery_timeout_ms=LONG) as (producer, store):
        store.lose_answers(cluster.entries, times=PATIENCE)
        future = producer.send("t", b"second")
        with pytest.raises(OutcomeUnknown):
            future.result(60)
        store.forget_troubles()
        assert producer.send("t", b"third").result(60).offset == 2
    assert cluster.values() == [b"first", b"second", b"third"]


def test_a_row_after_one_whose_outcome_stayed_unknown_is_no_repetition_of_it(cluster):
    with cluster.producer(delivery_timeout_ms=1000) as (producer, store):
        store.lose_answers(cluster.entries, times=10**6)
        with pytest.raises(OutcomeUnknown):
            producer.send("t", b"second").result(60)
        store.forget_troubles()
        assert producer.send("t", b"third").result(60).offset == 2
    assert cluster.values() == [b"first", b"second", b"third"]


@pytest.mark.parametrize("first_attempt", ["lose_answers", "be_silent"])
def test_what_refuses_a_repetition_does_not_replace_an_unknown_outcome(cluster, first_attempt):
    with cluster.producer(delivery_timeout_ms=LONG) as (producer, store):
        getattr(store, first_attempt)(cluster.entries, times=PATIENCE)
        store.refuse(cluster.entries)
        with pytest.raises(OutcomeUnknown) as caught:
            producer.send("t", b"second").result(60)
        assert isinstance(caught.value.__cause__, StoreRefused)


def test_an_unexpected_error_after_an_entry_was_written_leaves_the_outcome_unknown(cluster):
    def fail():
        raise OSError("the clock cannot sleep")

    with cluster.producer() as (producer, store):
        store.lose_answers(cluster.entries, meanwhile=fail)
        with pytest.raises(OutcomeUnknown, match=r"the clock cannot sleep.*look for its rows"):
            producer.send("t", b"second").result(60)
    assert cluster.values() == [b"first", b"second"]


def unwritable(store, times):
    """Let the store fail the next writes of files."""
    write, left = store.open_write, iter(range(times))

    def open_write(*given, **options):
        if next(left, None) is not None:
            raise StoreUnavailable("/cluster", "", "the test made this up")
        return write(*given, **options)

    store.open_write = open_write


def test_a_store_that_does_not_take_files_is_retried(cluster):
    with cluster.producer() as (producer, store):
        unwritable(store, times=5)
        assert producer.send("t", b"second").result(60).offset == 1
    assert cluster.values() == [b"first", b"second"]


def test_a_store_that_refuses_fails_the_batch_and_later_ones_go_on(cluster):
    with cluster.producer() as (producer, store):
        store.refuse(cluster.entries)
        future = producer.send("t", b"refused")
        with pytest.raises(StoreRefused):
            future.result(60)
        store.forget_troubles()
        assert producer.send("t", b"second").result(60).offset == 1
    assert cluster.values() == [b"first", b"second"]
