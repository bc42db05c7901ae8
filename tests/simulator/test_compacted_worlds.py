"""Each promise of compacted topics is taken out of the product, and a compacted world finds that.

The worlds are those of the smallest seeds whose topic is compacted. Without a fault they all pass, see
`test_simulator`.
"""

import contextlib
import itertools
from unittest import mock

import msgspec
import pytest

from pyspark_log.reading import batch_read_plan, newest_rows, planning, stream_planner
from pyspark_log_coordinator.maintenance import compaction_task
from pyspark_log_coordinator.maintenance.roll_input import RollInput
from pyspark_log_coordinator.model.partition import Partition
from pyspark_log_coordinator.model.topic_state import with_partition
from pyspark_log_coordinator.segments import compaction_plan, retention, roll_plan, swap
from pyspark_log_storage.columns import key_index
from pyspark_log_storage.columns.key_index import NONE, Found, Keys
from tests.simulator.run import run
from tests.simulator.settings import settings_of

OPERATIONS = 2000
WORLDS = 100


def compacted_seeds():
    return (seed for seed in itertools.count() if settings_of(seed, OPERATIONS).compaction is not None)


def replaced(owner, name, made):
    """Return a patch that puts `made(what it was)` in the place of something."""
    return mock.patch.object(owner, name, made(getattr(owner, name)))


def another_row_than_the_newest():
    def oldest(newest):
        return lambda keys: newest(Keys(*(each if each is None else each[::-1] for each in keys)))

    return replaced(key_index, "newest", oldest)


@contextlib.contextmanager
def a_fold_that_begins_above_the_compacted_end():
    def begins_later(fold):
        def planned(topic, partition, *args):
            work = fold(topic, partition, *args)
            return work and (msgspec.structs.replace(work, pieces=work.pieces[1:]) if work.pieces[1:] else None)

        return planned

    def fits(_):
        return lambda _, __, swapped, present: tuple(each.name for each in present) == swapped.replaces

    with replaced(compaction_plan, "_fold", begins_later), replaced(swap, "_fits_keyed", fits):
        yield


@contextlib.contextmanager
def rows_above_the_high_watermark():
    def as_if_committed(topic):
        for number, each in enumerate(topic.partitions):
            topic = with_partition(topic, number, msgspec.structs.replace(each, high_watermark=each.log_end))
        return topic

    def folds_all(due):
        return lambda topic, partition, *args: due(
            topic, msgspec.structs.replace(partition, high_watermark=partition.log_end), *args
        )

    def fits_all(fits):
        return lambda topic, swapped: fits(as_if_committed(topic), swapped)

    with replaced(compaction_plan, "due", folds_all), replaced(swap, "_fits", fits_all):
        yield


def rows_younger_than_min_compaction_lag_ms():
    def at_once(due):
        def planned(topic, *args):
            config = msgspec.structs.replace(topic.config, min_compaction_lag_ms=0)
            return due(msgspec.structs.replace(topic, config=config), *args)

        return planned

    return replaced(compaction_plan, "due", at_once)


def dense_rows_that_go_before_the_isr_has_the_segment():
    def enough(all_hold):
        return lambda topic, partition, segment: segment.keyed is not None or all_hold(topic, partition, segment)

    return replaced(swap, "_all_hold", enough)


def two_newest_rows_of_a_key():
    return mock.patch.object(RollInput, "found_keys", return_value=Found(NONE, None, NONE))


def a_fold_that_ignores_what_has_expired():
    def retained(plan):
        def planned(topic, now, budget=None, at_once=()):
            left = topic if budget is None else retention.retained(topic, now)
            return plan(left, now, budget, at_once)

        return planned

    return replaced(roll_plan, "plan", retained)


def deletions_that_go_at_once():
    def at_once(compaction_of):
        return lambda topic, partition, others, now, *older: msgspec.structs.replace(
            compaction_of(topic, partition, others, now, *older), kept_from_ms=now
        )

    return replaced(compaction_plan, "compaction_of", at_once)


def deletions_that_count_from_the_plan_on():
    return mock.patch.object(
        swap, "_swapped", lambda _, number, segment, now: swap.SegmentsSwapped(number, segment, now)
    )


def deletions_that_go_before_the_rows_that_they_delete():
    return mock.patch.object(compaction_task, "_with_older_rows", return_value=NONE)


def a_swap_of_what_has_changed():
    def fits_what_is_there(fits):
        def judged(topic, partition, swapped, present):
            names = tuple(each.name for each in present)
            return fits(topic, partition, msgspec.structs.replace(swapped, replaces=names), present)

        return judged

    return replaced(swap, "_fits_keyed", fits_what_is_there)


def a_swap_under_another_policy():
    return mock.patch.object(swap, "without_staged_compactions", lambda topic: topic)


def a_read_that_goes_on_after_a_compaction():
    def unaware(find_again):
        def found(log, split, offset):
            now = log.topic(split.topic).partitions[split.partition].compactions
            return find_again(log, msgspec.structs.replace(split, compactions=now), offset)

        return found

    return replaced(planning, "find_again", unaware)


def a_batch_that_is_repeated_with_other_rows():
    return mock.patch.object(stream_planner.StreamPlanner, "_check_repeated", return_value=None)


def a_lag_of_offsets():
    return mock.patch.object(Partition, "rows_between", lambda _, start, end: max(0, end - start))


def newest_rows_with_older_ones():
    return mock.patch.object(newest_rows, "superseded_in", return_value=NONE)


@contextlib.contextmanager
def newest_rows_of_a_version_that_was_compacted():
    unchecked = mock.patch("pyspark_log.clients.scan.check_compacted", return_value=None)
    with unchecked, mock.patch.object(batch_read_plan, "report_loss", return_value=None):
        yield


def failure_of(seed):
    """Return how a world fails, or None; what stops its last audit is a failure, too."""
    try:
        return run(seed, OPERATIONS).failure
    except Exception as error:  # noqa: BLE001 -- the product may fail in any way with a fault in it
        return error


FAULTS = {
    another_row_than_the_newest: 7,
    a_fold_that_begins_above_the_compacted_end: 7,
    rows_above_the_high_watermark: 7,
    rows_younger_than_min_compaction_lag_ms: 100,
    dense_rows_that_go_before_the_isr_has_the_segment: 15,
    two_newest_rows_of_a_key: 7,
    a_fold_that_ignores_what_has_expired: 22,
    deletions_that_go_at_once: 12,
    deletions_that_count_from_the_plan_on: 49,
    deletions_that_go_before_the_rows_that_they_delete: 112,
    a_swap_of_what_has_changed: 8,
    a_swap_under_another_policy: 297,
    a_read_that_goes_on_after_a_compaction: 106,
    a_batch_that_is_repeated_with_other_rows: 16,
    a_lag_of_offsets: 16,
    newest_rows_with_older_ones: 21,
    newest_rows_of_a_version_that_was_compacted: 88,
}
"""With the seed of a world that has found it. Worlds change with the product: where it does not, others are tried."""


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_compacted_worlds_find(fault):
    with fault():
        for seed in (FAULTS[fault], *itertools.islice(compacted_seeds(), WORLDS)):
            failure = failure_of(seed)
            assert not isinstance(failure, (TypeError, AttributeError, NameError)), (
                f"the fault itself fails: {failure!r}"
            )
            if failure is not None:
                print(f"{fault.__name__}: seed {seed}: {failure!r:.200}")
                return
    raise AssertionError(f"none of {WORLDS} worlds has found it")
