"""Folds and merges keep the newest row of each key, unchanged and in order, and say what they supersede."""

import itertools

import pytest
from hypothesis import given, settings

from pyspark_log_coordinator.audit.verify import verify
from pyspark_log_coordinator.maintenance import topic_cleanup
from pyspark_log_coordinator.topic.machine import DeleteRecords
from tests.support.coordinator.compacted_topic import CompactedTopic
from tests.support.coordinator.compaction_stories import VERSIONS, stories, tell
from tests.support.countdown import Countdown
from tests.support.faulty_store import Fault, Killed
from tests.support.rings import deep


@pytest.fixture
def topic():
    return CompactedTopic()


def offsets(topic):
    return [row.offset for row in topic.keyed_rows()]


def test_a_later_fold_says_which_rows_of_earlier_ones_it_supersedes(topic):
    topic.write([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
    topic.do(topic.fold_job())
    topic.write([(b"b", b"2"), (b"d", b"1")])
    topic.do(topic.fold_job())
    assert offsets(topic) == [0, 1, 2, 3, 4]
    assert topic.superseded() == {1}
    topic.write([(b"b", b"3"), (b"c", None)])
    topic.do(topic.fold_job())
    assert topic.superseded() == {1, 2, 3}
    assert [each.keyed.superseded for each in topic.partition.segments] == [2, 1, 0]
    topic.check()


def test_a_merge_leaves_out_what_is_superseded(topic):
    for values in ([(b"a", b"1"), (b"b", b"1")], [(b"b", b"2"), (b"c", b"1")], [(b"c", b"2"), (b"a", b"2")]):
        topic.write(values)
        topic.do(topic.fold_job())
    assert topic.do(topic.merge_job(0, 2))
    assert offsets(topic) == [2, 4, 5]
    assert topic.superseded() == {0, 3}  # said by the third, which names rows that are gone
    assert topic.do(topic.merge_job(0, 2))
    assert (offsets(topic), topic.superseded()) == ([2, 4, 5], set())
    topic.check()
    assert verify(topic.handle).findings == []


def test_a_row_that_deletes_its_key_stays_until_delete_retention_ms_has_passed(topic):
    topic.write([(b"a", b"1"), (b"b", b"1")])
    topic.do(topic.fold_job())
    topic.write([(b"a", None), (b"c", b"1")])
    topic.do(topic.fold_job())
    topic.now_ms += 999
    topic.do(topic.merge_job(0, 2))
    assert offsets(topic) == [1, 2, 3]
    topic.now_ms += 1
    topic.do(topic.merge_job(0, 1))
    assert offsets(topic) == [1, 3]
    topic.check()


def test_a_merge_keeps_a_row_that_deletes_its_key_for_as_long_as_the_youngest(topic):
    topic.write([(b"a", None), (b"b", b"1")])
    topic.do(topic.fold_job())
    topic.now_ms += 900
    topic.write([(b"c", None)])
    topic.do(topic.fold_job())
    topic.do(topic.merge_job(0, 2))
    topic.now_ms += 999
    topic.do(topic.merge_job(0, 1))
    assert offsets(topic) == [0, 1, 2]
    topic.now_ms += 1
    topic.do(topic.merge_job(0, 1))
    assert offsets(topic) == [1]
    topic.check()


def test_a_row_that_deletes_its_key_stays_while_an_older_row_of_the_key_is_left(topic):
    topic.write([(b"a", b"1"), (b"b", b"1")])
    topic.do(topic.fold_job())
    topic.write([(b"a", None), (b"c", b"1"), (b"d", None)])
    topic.do(topic.fold_job())
    topic.now_ms += 1000
    topic.do(topic.merge_job(1, 1))
    assert offsets(topic) == [0, 1, 2, 3]  # without row 2, who reads all rows would find key a
    topic.do(topic.merge_job(0, 1))
    topic.do(topic.merge_job(1, 1))
    assert offsets(topic) == [1, 3]
    topic.check()


@pytest.fixture
def versioned():
    return CompactedTopic(has_versions=True)


def test_the_row_with_the_largest_version_is_the_newest_and_of_these_the_last(versioned):
    versioned.write([(b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (b"b", b"2"), (b"c", b"1")], [5, 4, 7, 7, None])
    versioned.do(versioned.fold_job())
    assert offsets(versioned) == [0, 3, 4]
    versioned.write([(b"a", b"3"), (b"b", b"3"), (b"c", b"2")], [4, 8, None])
    versioned.check()
    versioned.do(versioned.fold_job())
    assert (offsets(versioned), versioned.superseded()) == ([0, 3, 4, 6, 7], {3, 4})
    versioned.check()
    versioned.do(versioned.merge_job(0, 2))
    assert offsets(versioned) == [0, 6, 7]
    versioned.check()
    assert verify(versioned.handle).findings == []


def test_a_late_row_does_not_come_back_if_it_was_written_before_delete_retention_ms_had_passed(versioned):
    versioned.write([(b"a", None), (b"b", b"1")], [5, 5])
    versioned.do(versioned.fold_job())
    versioned.now_ms += 999
    versioned.write([(b"a", b"late")], [4])
    versioned.now_ms += 10_000
    for _ in range(2):
        versioned.do(versioned.merge_job(0, len(versioned.partition.keyed_segments)))
        assert versioned.newest().keys() == {b"b"}
        versioned.do(versioned.fold_job())
    versioned.check()
    versioned.write([(b"a", b"later")], [3])  # after that it does
    assert versioned.newest().keys() == {b"a", b"b"}
    versioned.check()


def test_rows_that_were_deleted_are_older_whatever_their_versions(versioned):
    versioned.write([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")], [5, 5, 5])
    versioned.do(versioned.fold_job())
    versioned.handle.submit(DeleteRecords(0, 2))
    versioned.write([(b"a", b"2"), (b"c", b"2"), (b"d", b"1")], [4, 4, 4])
    versioned.do(versioned.fold_job())
    assert (offsets(versioned), versioned.superseded()) == ([0, 1, 2, 3, 5], {0})
    versioned.do(versioned.merge_job(0, 2))
    assert offsets(versioned) == [1, 2, 3, 5]
    assert verify(versioned.handle).findings == []


def test_a_fold_that_left_rows_out_for_newer_ones_which_were_deleted_meanwhile_is_refused(versioned):
    versioned.write([(b"a", b"1"), (b"b", b"1")], [5, 5])
    versioned.do(versioned.fold_job())
    versioned.write([(b"a", b"2"), (b"c", b"1")], [4, 1])
    made = versioned.make(versioned.fold_job())
    versioned.handle.submit(DeleteRecords(0, 2))
    assert versioned.newest().keys() == {b"a", b"c"}
    assert not versioned.swap_in(made)
    assert versioned.do(versioned.fold_job())
    assert versioned.newest().keys() == {b"a", b"c"}


def test_a_fold_leaves_out_rows_that_were_deleted(versioned):
    versioned.write([(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1")], [5, 5, 4, 5])
    versioned.handle.submit(DeleteRecords(0, 1))
    versioned.do(versioned.fold_job())
    assert offsets(versioned) == [1, 2, 3]


def test_a_row_that_deletes_its_key_stays_also_if_an_older_one_that_does_came_later(versioned):
    for rows, versions in (
        ([(b"a", b"1"), (b"b", b"1")], [1, 1]),
        ([(b"a", None), (b"c", b"1")], [5, 1]),
        ([(b"a", None)], [3]),
    ):
        versioned.write(rows, versions)
        versioned.do(versioned.fold_job())
    assert (offsets(versioned), versioned.superseded()) == ([0, 1, 2, 3, 4], {0, 4})
    versioned.now_ms += 1000
    versioned.do(versioned.merge_job(1, 2))
    assert offsets(versioned) == [0, 1, 2, 3]  # without row 2, who reads all rows would find key a
    versioned.check()


JOBS = {
    "fold": lambda topic: topic.do(topic.fold_job()),
    "merge of two": lambda topic: topic.do(topic.merge_job(0, 2)),
    "merge of the last": lambda topic: topic.do(topic.merge_job(1, 1)),
    "maintenance and cleanup": lambda topic: (
        topic.maintain(),
        topic_cleanup.clean_up_topic(topic.handle, thorough=True),
    ),
}


def filled(store):
    """Return a topic with two keyed segments, dense rows after them, and a deletion whose time has passed."""
    topic = CompactedTopic(store)
    for number in range(2):
        topic.write([(b"%d" % key, b"%d" % number if key != 3 + number else None) for key in range(number, 6 + number)])
        topic.do(topic.fold_job())
    topic.now_ms += 2000
    topic.write([(b"2", b"new"), (b"5", None), (b"9", b"new")])
    return topic


@pytest.mark.parametrize(
    ("fault", "every"), [(Fault.KILL_AFTER, 3), deep(Fault.KILL_BEFORE, 1), deep(Fault.KILL_AFTER, 1)]
)
@pytest.mark.parametrize("job", JOBS)
def test_a_process_may_be_killed_at_each_step_of_a_compaction(job, fault, every):
    for made in itertools.count(step=every):
        countdown = Countdown(fault)
        store = countdown.store()
        topic = filled(store)
        countdown.left = made
        try:
            JOBS[job](topic)
        except Killed:
            countdown.left = None
        else:
            break
        topic.reopen(store)
        topic.check()
        topic.write([(b"1", b"later")])
        for each in JOBS.values():
            each(topic)
            topic.check()
        assert verify(topic.handle).findings == []
    assert made >= 3, "it has become shorter"  # two files and an entry


@pytest.mark.parametrize("examples", [30, deep(150)])
def test_whatever_is_folded_merged_and_rolled_the_newest_rows_are_those_that_were_written_last(examples):
    @settings(max_examples=examples)
    @given(stories())
    def hold(story):
        tell(CompactedTopic(), story)

    hold()


@pytest.mark.parametrize("examples", [30, deep(300)])
def test_with_versions_they_are_those_with_the_largest_whenever_they_were_written(examples):
    @settings(max_examples=examples)
    @given(stories(keys=(b"a", b"b", b"c", None), versions=VERSIONS))
    def hold(story):
        tell(CompactedTopic(has_versions=True), story)

    hold()
