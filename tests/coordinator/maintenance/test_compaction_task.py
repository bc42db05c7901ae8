"""Folds and merges keep the newest row of each key, unchanged and in order, and say what they supersede."""

import itertools

import pytest
from hypothesis import given, settings

from pyspark_log_coordinator.audit.verify import verify
from pyspark_log_coordinator.maintenance import topic_cleanup
from pyspark_log_coordinator.topic.machine import DeleteRecords
from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.stores.faults import Fault
from tests.support.coordinator.compacted_topic import CompactedTopic
from tests.support.coordinator.compaction_stories import VERSIONS, stories, tell
from tests.support.countdown import Countdown, Killed


@pytest.fixture
def topic():
    return CompactedTopic()


def offsets(topic):
    return [row.offset for row in topic.keyed_rows()]


def test_a_fold_keeps_the_newest_row_of_each_key(topic):
    topic.write([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")])
    topic.write([(b"c", b"1"), (b"b", b"2"), (b"b", b"3")])
    assert topic.do(topic.fold_job())
    assert offsets(topic) == [2, 3, 5]
    topic.check()
    assert verify(topic.handle).findings == []


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


def test_if_nothing_is_left_the_last_row_stays(topic):
    topic.write([(b"a", b"1"), (b"b", b"1")])
    topic.do(topic.fold_job())
    topic.write([(b"b", b"2"), (b"a", b"2")])
    topic.do(topic.fold_job())
    topic.do(topic.merge_job(0, 1))
    assert offsets(topic) == [1, 2, 3]
    topic.check()


def test_rows_without_a_key_go_with_the_first_fold(topic):
    topic.write([(None, b"1"), (b"a", b"1"), (None, b"2")])
    topic.do(topic.fold_job())
    assert offsets(topic) == [1]
    topic.write([(None, b"3"), (None, b"4")])
    topic.do(topic.fold_job())
    assert offsets(topic) == [1, 4]
    topic.check()
    assert verify(topic.handle).findings == []


def test_empty_and_long_keys_are_keys_too(topic):
    topic.write([(b"", b"1"), (b"x" * 10_000, b"1"), (b"", b"2"), (b"\0", b"1"), (b"\0\0", b"1")])
    topic.do(topic.fold_job())
    assert offsets(topic) == [1, 2, 3, 4]
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


def test_of_rows_that_are_all_older_the_last_stays_and_is_superseded_itself(versioned):
    versioned.write([(b"a", b"1"), (b"b", b"1")], [5, 5])
    versioned.do(versioned.fold_job())
    versioned.write([(b"b", b"2"), (b"a", b"2")], [4, 4])
    versioned.do(versioned.fold_job())
    assert (offsets(versioned), versioned.superseded()) == ([0, 1, 3], {3})
    versioned.check()
    versioned.do(versioned.merge_job(1, 1))
    assert (offsets(versioned), versioned.superseded()) == ([0, 1, 3], {3})
    versioned.check()
    assert verify(versioned.handle).findings == []
    versioned.write([(b"a", b"3")], [6])
    versioned.do(versioned.fold_job())
    assert versioned.superseded() == {0, 3}
    versioned.do(versioned.merge_job(0, 3))
    assert (offsets(versioned), versioned.superseded()) == ([1, 4], set())
    versioned.check()


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


def test_a_fold_of_a_late_row_and_the_merge_that_drops_what_deleted_its_key_do_not_make_each_other_wrong(versioned):
    versioned.write([(b"a", None), (b"b", b"1")], [5, 5])
    versioned.do(versioned.fold_job())
    versioned.now_ms += 1000
    versioned.write([(b"a", b"late"), (b"c", b"1")], [4, 1])
    fold, merge = versioned.make(versioned.fold_job()), versioned.make(versioned.merge_job(0, 1))
    assert versioned.swap_in(merge)
    versioned.check()
    assert versioned.swap_in(fold)
    versioned.check()
    assert versioned.newest().keys() == {b"b", b"c"}  # it was left out: the key is deleted


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


def test_a_row_that_deletes_its_key_by_a_column_which_was_set_later_stays_while_an_older_one_is_left(versioned):
    versioned.handle.alter_config({"delete.when": ""})
    for rows, versions in (([(b"a", b"1"), (b"b", b"1")], [1, 1]), ([(b"a", None), (b"c", b"1")], [5, 1])):
        versioned.write(rows, versions)
        versioned.do(versioned.fold_job())
    versioned.handle.alter_config({"delete.when": "gone"})
    versioned.now_ms += 1000
    versioned.do(versioned.merge_job(1, 1))
    assert offsets(versioned) == [0, 1, 2, 3]
    versioned.do(versioned.merge_job(0, 2))
    assert offsets(versioned) == [1, 3]


def test_what_was_compacted_by_another_version_column_is_refused(versioned):
    versioned.handle.alter_config({"compaction.version.column": ""})
    versioned.write([(b"a", b"1"), (b"a", b"2")], [5, 4])
    made = versioned.make(versioned.fold_job())
    versioned.handle.alter_config({"compaction.version.column": "VERSION"})
    assert not versioned.swap_in(made)
    assert versioned.do(versioned.fold_job())
    assert offsets(versioned) == [0]
    versioned.check()
    for other in ("", "gone"):
        with pytest.raises(InvalidOption, match=r"has compaction\.version\.column=version, by which rows have been"):
            versioned.handle.alter_config({"compaction.version.column": other})
    versioned.handle.alter_config({"compaction.version.column": "Version", "cleanup.policy": "delete"})
    assert versioned.handle.config.compaction_version_column == "version"


def test_a_version_column_is_not_set_when_rows_have_been_compacted():
    topic = CompactedTopic(has_versions=True, compaction_version_column="")
    topic.handle.alter_config({"compaction.version.column": ""})
    topic.write([(b"a", b"1")], [5])
    topic.do(topic.fold_job())
    with pytest.raises(InvalidOption, match=r"compaction\.version\.column=none, by which rows have been compacted"):
        topic.handle.alter_config({"compaction.version.column": "version"})


def test_a_process_may_be_killed_at_each_step_of_a_compaction_by_versions():
    story = [
        ("write", [(b"a", True, 5), (b"b", False, 5)]),
        ("fold", 1),
        ("write", [(b"a", True, 4), (b"b", True, 4)]),
        ("fold", 2),
        ("merge", (0, 2)),
    ]
    for made in itertools.count():
        countdown = Countdown(Fault.KILL_AFTER)
        store = countdown.store()
        topic = CompactedTopic(store, has_versions=True)
        countdown.left = made
        try:
            tell(topic, story)
        except Killed:
            countdown.left = None
            topic.reopen(store)
            if len(topic.written) < topic.partition.log_end:
                continue  # it was killed between the write and our note of it
            topic.check()
            topic.maintain()
            topic.check()
            assert verify(topic.handle).findings == []
        else:
            break
    assert made >= 9, "it has become shorter"


def test_maintenance_ends_with_nothing_to_do(topic):
    for batch in range(40):
        topic.write([(b"%d" % (batch * 7 % 23), b"%d" % batch), (b"hot", b"%d" % batch)])
        if batch % 3 == 0:
            topic.maintain()
            topic.check()
    topic.now_ms += 10_000
    topic.maintain()
    assert topic.maintain() == 0
    topic.check()
    assert verify(topic.handle).findings == []


def test_a_fold_and_a_merge_made_at_once_do_not_make_each_other_wrong(topic):
    for number in range(4):
        topic.write([(b"%d" % (key % 3), b"%d" % number) for key in range(number, number + 3)])
        topic.do(topic.fold_job())
    topic.write([(b"0", b"new"), (b"1", b"new")])
    fold, merge = topic.make(topic.fold_job()), topic.make(topic.merge_job(1, 2))
    assert topic.swap_in(fold)
    assert topic.swap_in(merge)
    topic.check()
    topic.do(topic.merge_job(0, len(topic.partition.keyed_segments)))
    topic.check()


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


@pytest.mark.parametrize("fault", [Fault.KILL_BEFORE, Fault.KILL_AFTER])
@pytest.mark.parametrize("job", JOBS)
def test_a_process_may_be_killed_at_each_step_of_a_compaction(job, fault):
    for made in itertools.count():
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


@settings(max_examples=150, deadline=None)
@given(stories())
def test_whatever_is_folded_merged_and_rolled_the_newest_rows_are_those_that_were_written_last(story):
    tell(CompactedTopic(), story)


@settings(max_examples=300, deadline=None)
@given(stories(keys=(b"a", b"b", b"c", None), versions=VERSIONS))
def test_with_versions_they_are_those_with_the_largest_whenever_they_were_written(story):
    tell(CompactedTopic(has_versions=True), story)
