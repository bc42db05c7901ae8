"""Verify: a sound topic is sound, and each kind of damage is named."""

import pytest

from pyspark_log_coordinator.audit.verify import verify
from pyspark_log_coordinator.journal.replay import EntryMissing
from pyspark_log_coordinator.maintenance import cluster_cleanup, topic_cleanup, topic_roll
from tests.support.coordinator.audited_topic import audit, finding, flip, said
from tests.support.coordinator.stored_topic import AT_ONCE, StoredTopic

DAMAGE = [0, 5, 40, 100, -1]
"""Positions of flipped bits in a file."""


# Sound topics


def test_a_topic_with_everything_is_sound(topic):
    report = audit(topic)
    assert report.findings == []
    assert report.sound
    assert (report.segments, report.rows, report.orphans) == (2, 35 + 39, [])
    assert report.bytes > 0
    assert report.entries == topic.handle.journal.number


def test_a_topic_is_sound_after_trimming_and_cleaning_up(topic):
    topic.fill(60, partitions=(0, 1))
    topic_roll.roll_and_merge(topic.handle)
    topic.clock.now_ms = 10**9
    for _ in range(3):
        topic_cleanup.clean_up_topic(topic.handle)
    report = audit(topic)
    assert report.findings == []
    assert report.entries < topic.handle.journal.number
    assert report.rows == sum(each.log_end - each.log_start for each in topic.handle.journal.state.partitions)


@pytest.mark.parametrize("how", ["merged", "rolled", "expired", "topic deleted"])
def test_what_others_replace_and_delete_during_an_audit_is_no_fault(how):
    topic = StoredTopic(**AT_ONCE)
    for _ in range(3):
        topic.fill(2)
        topic.roll()
    topic.fill(2)
    other = topic.open()
    audited, topic.handle = topic.handle, other.topic("t")
    acts = {
        "merged": lambda: topic.merge(3),
        "rolled": topic.roll,
        "expired": lambda: topic.handle.delete_records(0, -1),
        "topic deleted": lambda: other.delete_topic("t"),
    }
    todo = [acts[how]]

    def progress(_):
        if todo:
            todo.pop()()
            topic.clock.now_ms = 10**7
            if how == "topic deleted":
                cluster_cleanup.clean_up_cluster(other)
            else:
                topic_cleanup.clean_up_topic(topic.handle)

    before = topic.keys()
    assert verify(audited, progress).findings == []
    assert set(before) - set(topic.keys())


# Damage


def newest_file(topic):
    """The newest append file, which has a chunk of partition 0 and then one of partition 1."""
    return topic.handle.append_file(topic.handle.refresh().files[-1].name)


@pytest.mark.parametrize("position", DAMAGE)
@pytest.mark.parametrize("what", [".log", ".index", "append file"])
def test_a_flipped_bit_is_named_and_that_of_an_index_is_repairable(topic, position, what):
    key = newest_file(topic) if what == "append file" else f"{topic.segment_key()}{what}"
    flip(topic, key, position)
    found = finding(topic)
    assert key in said(found)
    assert found.repairable == (what == ".index")
    if what == "append file":
        assert f"partition {1 if position < 0 else 0}, offset 36" in said(found)


@pytest.mark.parametrize("number", [1, 8, 15])
def test_a_flipped_bit_of_any_entry_is_named(topic, number):
    key = f"{topic.folder}journal/entries/{number:020d}"
    flip(topic, key, -1)
    assert key in said(finding(topic))


@pytest.mark.parametrize("number", [-1, -2, -5])
def test_an_entry_that_is_lost_is_named_and_the_one_that_it_hides(topic, number):
    topic.fill(7 - topic.handle.journal.number % 8)
    missing = topic.handle.journal.number + number
    key = f"{topic.folder}journal/entries/{missing:020d}"
    topic.store.delete(key)
    with pytest.raises(EntryMissing, match=f"{key}.*entry {topic.handle.journal.number} exists"):
        audit(topic)
