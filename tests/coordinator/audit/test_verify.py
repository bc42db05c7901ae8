"""Verify: a sound topic is sound, and each kind of damage is named."""

import pytest

from pyspark_log_coordinator.audit.verify import verify
from pyspark_log_coordinator.maintenance import cluster_cleanup, topic_cleanup
from tests.support.coordinator.audited_topic import audit, finding, said
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
    topic.damage(key, position)
    found = finding(topic)
    assert key in said(found)
    assert found.repairable == (what == ".index")
    if what == "append file":
        assert f"partition {1 if position < 0 else 0}, offset 36" in said(found)


@pytest.mark.parametrize("number", [1, 8, 15])
def test_a_flipped_bit_of_any_entry_is_named(topic, number):
    key = f"{topic.folder}journal/entries/{number:020d}"
    topic.damage(key)
    assert key in said(finding(topic))
