"""The Delta table of a compacted topic is its head, as plain files, after whatever has happened."""

import itertools

import msgspec
import pytest
from hypothesis import given, settings

from pyspark_log_coordinator.maintenance import topic_cleanup
from pyspark_log_coordinator.topic.machine import AlterConfig
from pyspark_log_storage.delta import delta_log
from pyspark_log_storage.layout import topic_folder
from tests.support.coordinator.compacted_topic import CompactedTopic
from tests.support.coordinator.compaction_stories import stories, tell
from tests.support.countdown import Countdown
from tests.support.faulty_store import Fault, Killed
from tests.support.rings import deep
from tests.support.storage import table_reader


class HeadTable(CompactedTopic):
    """A compacted topic, and its table."""

    @property
    def folder(self):
        return topic_folder("t", self.handle.topic_id)

    def rows(self):
        """Return the rows of the table, as a reader finds them that knows nothing but Delta's protocol."""
        objects = {key: self.store.read(key) for key in self.store.list(self.folder)}
        return sorted(tuple(each) for each in table_reader.rows_in(objects, self.folder, ["offset", "key", "value"]))

    def clean(self, *rows):
        self.write(rows)
        assert self.do(self.clean_job())

    def clean_up(self):
        """Publish the table, and hold that it is right."""
        topic_cleanup.clean_up_topic(self.handle)
        assert self.rows() == [tuple(each) for each in self.head_rows()]


@pytest.fixture
def topic():
    return HeadTable()


def test_the_table_has_one_row_of_each_key_also_of_those_that_were_deleted_lately(topic):
    topic.clean((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    topic.clean_up()
    assert topic.rows() == [(0, b"a", b"1"), (1, b"b", b"1"), (2, b"c", b"1")]
    topic.clean((b"b", b"2"), (b"c", None), (b"d", b"1"))
    topic.clean_up()
    assert topic.rows() == [(0, b"a", b"1"), (3, b"b", b"2"), (4, b"c", None), (5, b"d", b"1")]
    table = delta_log.read(topic.store, topic.folder)
    assert table.protocol == delta_log.PROTOCOL
    assert table.metadata.configuration == {}
    stats = [msgspec.json.decode(each.stats) for each in table.files.values()]
    assert [sorted(each["minValues"]) for each in stats] == [["partition", "timestamp"]] * 2, "offsets may be missing"
    topic.now_ms += 1000
    topic.clean((b"e", b"1"))
    topic.clean_up()
    assert topic.rows() == [(0, b"a", b"1"), (3, b"b", b"2"), (5, b"d", b"1"), (6, b"e", b"1")]


@pytest.mark.parametrize(
    ("fault", "every"), [(Fault.KILL_AFTER, 3), deep(Fault.KILL_BEFORE, 1), deep(Fault.KILL_AFTER, 1)]
)
def test_a_process_may_be_killed_at_each_step_of_a_cleanup(fault, every, monkeypatch):
    monkeypatch.setattr(delta_log, "CHECKPOINT_EVERY", 2)
    for made in itertools.count(step=every):
        countdown = Countdown(fault)
        store = countdown.store()
        topic = HeadTable(store, file_delete_delay_ms="500")
        for number in range(4):
            topic.clean(*((b"%d" % key, b"%d" % number) for key in range(number, number + 3)), (b"gone", None))
            if number != 2:
                topic_cleanup.clean_up_topic(topic.handle)
        before = topic.rows()
        topic.do(topic.merge_job(0, 2))
        topic.clean((b"2", b"new"), (b"4", None))
        topic.now_ms += 1000
        countdown.left = made
        try:
            topic_cleanup.clean_up_topic(topic.handle)
        except Killed:
            countdown.left = None
        else:
            break
        topic.reopen(store)
        assert topic.rows() in (before, [tuple(each) for each in topic.head_rows()])
        topic.clean_up()
    assert made >= 5, "it has become shorter"


@pytest.mark.parametrize("examples", [30, deep(150)])
def test_whatever_has_happened_the_table_is_the_head(examples):
    settings(max_examples=examples)(given(stories())(hold_the_head))()


def hold_the_head(story):
    topic, steps = HeadTable(file_delete_delay_ms="500"), itertools.count(1)

    def go_on():
        """Clean up after every second step. Between some of the steps the topic is not compacted."""
        number = next(steps)
        if number % 5 in {0, 3}:
            topic.handle.submit(AlterConfig({"cleanup.policy": "delete" if number % 5 else "compact"}))
        if number % 2 and topic.handle.config.is_compacted:
            topic.clean_up()
        elif number % 2:
            topic_cleanup.clean_up_topic(topic.handle)

    tell(topic, story, go_on)
    topic.handle.submit(AlterConfig({"cleanup.policy": "compact"}))
    topic.do(topic.clean_job())
    topic.clean_up()
    live = {key: (offset, key, value) for offset, key, value in topic.rows() if value is not None}
    assert live == {key: tuple(row) for key, row in topic.expected().items()}
