"""Cleanings and merges keep the newest row of each key, unchanged and in order, and no other row of the head."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log_coordinator.audit.verify import verify
from pyspark_log_coordinator.maintenance import compaction_task, topic_cleanup
from pyspark_log_coordinator.segments import compaction_plan
from pyspark_log_coordinator.segments.retention import DeleteRecords
from tests.support.coordinator.compacted_topic import CompactedTopic
from tests.support.coordinator.compaction_stories import stories, tell
from tests.support.countdown import Countdown
from tests.support.faulty_store import Fault, Killed
from tests.support.rings import deep


@pytest.fixture
def topic():
    return CompactedTopic()


def cleaned(topic, *rows):
    """Write rows of a key and a value, and clean all that is dense."""
    topic.write(rows)
    assert topic.do(topic.clean_job())
    topic.check()


def offsets(topic):
    return [row.offset for row in topic.head_rows()]


def bounds(topic):
    return [(each.base_offset, each.end_offset) for each in topic.partition.segments]


def test_a_row_that_deletes_its_key_stays_until_delete_retention_ms_has_passed(topic):
    cleaned(topic, (b"a", b"1"), (b"b", b"1"))
    cleaned(topic, (b"a", None), (b"c", b"1"))
    assert offsets(topic) == [1, 2, 3]
    topic.now_ms += 999
    cleaned(topic, (b"d", b"1"))
    assert offsets(topic) == [1, 2, 3, 4]
    topic.now_ms += 1
    cleaned(topic, (b"e", b"1"))
    assert offsets(topic) == [1, 3, 4, 5]


def test_in_an_idle_topic_it_goes_when_half_of_the_rows_are_past_their_time(topic):
    cleaned(topic, (b"a", None), (b"b", b"1"), (b"c", b"1"))
    topic.now_ms += 1000
    assert topic.maintain() == 0
    cleaned(topic, (b"b", None), (b"d", b"1"))
    topic.now_ms += 1000
    assert topic.maintain() == 1
    assert offsets(topic) == [2, 4]


def test_a_cleaning_leaves_out_rows_that_were_deleted(topic):
    cleaned(topic, (b"a", b"1"), (b"b", b"1"))
    topic.write([(b"c", b"1"), (b"c", b"2"), (b"d", b"1")])
    topic.handle.submit(DeleteRecords(0, 4))
    topic.do(topic.clean_job())
    assert offsets(topic) == [4]
    topic.write([(b"e", b"1")])
    topic.do(topic.clean_job())
    assert offsets(topic) == [4, 5]
    topic.handle.submit(DeleteRecords(0, 5))
    topic.write([(b"f", b"1"), (b"g", b"1")])
    topic.do(topic.clean_job())
    topic.handle.submit(DeleteRecords(0, 7))
    topic.write([(b"h", b"1")])
    topic.do(topic.clean_job())
    assert offsets(topic) == [7, 8], "row 6 is in a file with a row that stays"
    assert verify(topic.handle).findings == []


def test_a_column_may_say_which_rows_delete_their_key_and_a_key_may_be_in_several():
    topic = CompactedTopic(is_typed=True)
    cleaned(topic, (b"a", b"1"), (b"b", b"1"), (None, b"1"), (b"a", b"2"))
    cleaned(topic, (b"b", None), (b"c", b"1"))
    assert offsets(topic) == [3, 4, 5]
    topic.now_ms += 1000
    cleaned(topic, (b"d", b"1"))
    assert offsets(topic) == [3, 5, 6]
    topic.handle.alter_config({"delete.when": ""})
    assert topic.do(topic.merge_job(0, 3))
    assert topic.partition.segments[0].keyed.tombstones == 0


def test_a_placeholder_of_a_key_that_has_a_newer_row_is_no_row_of_the_head(topic, monkeypatch):
    """Offsets without a row may be too many for a segment."""

    def narrow(sources, *, makes_one):
        return compaction_plan.outputs(sources, makes_one=makes_one, span_max=4)

    monkeypatch.setattr(compaction_task, "outputs", narrow)
    cleaned(topic, (b"a", b"1"), (b"b", b"1"))
    cleaned(topic, (b"a", b"2"), (b"b", b"2"), (b"b", b"3"))
    assert [each.keyed.placeholder for each in topic.partition.segments] == [1, None]
    assert (offsets(topic), topic.newest().keys()) == ([2, 4], {b"a", b"b"})
    assert verify(topic.handle).findings == []
    monkeypatch.undo()
    cleaned(topic, (b"c", b"1"))
    assert (offsets(topic), bounds(topic)) == ([2, 4, 5], [(0, 5), (5, 6)])


JOBS = {
    "cleaning": lambda topic: topic.do(topic.clean_job()),
    "merge of two": lambda topic: topic.do(topic.merge_job(0, 2)),
    "merge of the last": lambda topic: topic.do(topic.merge_job(1, 1)),
    "maintenance and cleanup": lambda topic: (
        topic.maintain(),
        topic_cleanup.clean_up_topic(topic.handle, thorough=True),
    ),
}


def filled(store):
    """Return a topic with a head of two segments, dense rows after them, and a deletion whose time has passed."""
    topic = CompactedTopic(store)
    for number in range(2):
        topic.write([(b"%d" % key, b"%d" % number if key != 3 + number else None) for key in range(number, 6 + number)])
        topic.do(topic.clean_job())
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
def test_whatever_is_cleaned_merged_and_rolled_the_newest_rows_are_those_that_were_written_last(examples):
    @settings(max_examples=examples)
    @given(stories(), st.booleans())
    def hold(story, is_typed):
        tell(CompactedTopic(is_typed=is_typed), story)

    hold()
