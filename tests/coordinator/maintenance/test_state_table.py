"""The Delta table of a compacted topic is its newest state, as of the compacted end, after whatever has happened."""

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log_coordinator.maintenance import delta_table, topic_cleanup
from pyspark_log_coordinator.topic.machine import AlterConfig
from pyspark_log_storage.delta import delta_log
from pyspark_log_storage.layout import topic_folder
from tests.support.coordinator.compacted_topic import CompactedTopic
from tests.support.countdown import Countdown
from tests.support.faulty_store import Fault, Killed
from tests.support.rings import deep
from tests.support.storage import vector_reader


class StateTable(CompactedTopic):
    """A compacted topic, and its table."""

    @property
    def folder(self):
        return topic_folder("t", self.handle.topic_id)

    def objects(self):
        return {key: self.store.read(key) for key in self.store.list(self.folder)}

    def rows(self):
        """Return the rows of the table."""
        return sorted(tuple(each) for each in vector_reader.rows_in(self.objects(), self.folder, COLUMNS))

    def wanted(self):
        """Return the rows that the table must have: those of the newest state as of the compacted end."""
        end = self.partition.compacted_end
        return sorted(row[:3] for row in self.newest_written(end).values() if row.value is not None)

    def fold(self, *rows):
        self.write(rows)
        assert self.do(self.fold_job())

    def clean_up(self):
        """Publish the table, and hold that it is right, and what it would be if nothing was known of it."""
        topic_cleanup.clean_up_topic(self.handle)
        assert self.rows() == self.wanted()
        state = self.handle.journal.state
        anew = delta_table.newest_state(self.store, self.folder, state, "0", 0, {})
        table = delta_log.read(self.store, self.folder).files
        assert {path: msgspec.structs.replace(each, modification_time=0) for path, each in table.items()} == anew

    def vectors(self):
        """Return the rows in the vector of each file, in the order of the files."""
        files = vector_reader.live_files(self.objects(), self.folder)
        found = [each.get("deletionVector") for _, each in sorted(files.items())]
        return [vector_reader.rows_of(each) if each else [] for each in found]


COLUMNS = ["offset", "key", "value"]


@pytest.fixture
def topic():
    return StateTable()


def test_the_table_has_the_newest_row_of_each_key_that_was_not_deleted(topic):
    topic.fold((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    topic.clean_up()
    assert topic.rows() == [(0, b"a", b"1"), (1, b"b", b"1"), (2, b"c", b"1")]
    topic.fold((b"b", b"2"), (b"c", None), (b"d", b"1"))
    topic.clean_up()
    assert topic.rows() == [(0, b"a", b"1"), (3, b"b", b"2"), (5, b"d", b"1")]
    assert topic.vectors() == [[1, 2], [1]]
    table = delta_log.read(topic.store, topic.folder)
    assert (table.protocol.min_reader, table.protocol.reader_features) == (3, ("deletionVectors",))
    assert table.metadata.configuration["delta.enableDeletionVectors"] == "true"
    topic.do(topic.merge_job(0, 2))
    topic.clean_up()
    (added,) = delta_log.read(topic.store, topic.folder).files.values()
    stats = msgspec.json.decode(added.stats)
    # They are bounds, which rows need not reach.
    assert (stats["minValues"]["offset"], stats["maxValues"]["offset"], stats["tightBounds"]) == (0, 5, False)


def test_a_last_row_that_is_older_than_what_was_there_is_not_in_the_table():
    topic = StateTable(has_versions=True)
    for key, version in ((b"a", 5), (b"b", 5), (b"a", 4), (b"b", 6)):
        topic.write([(key, b"%d" % version)], [version])
        topic.do(topic.fold_job())
        topic.clean_up()
    assert topic.rows() == [(0, b"a", b"5"), (3, b"b", b"6")]
    assert topic.vectors() == [[], [0], [0], []]


@pytest.mark.slow
def test_a_large_file_has_its_vector_in_several_containers(topic):
    rows = 70_000
    topic.fold(*((b"%d" % key, None if key % 7 == 0 else b"1") for key in range(rows)))
    topic.fold(*((b"%d" % key, b"2") for key in range(60_000, 68_000)))
    topic.clean_up()
    first, second = topic.vectors()
    assert first == sorted({*range(0, rows, 7), *range(60_000, 68_000)})
    assert second == []


# What is known may be wrong


def test_after_an_election_nothing_is_taken_from_the_table(topic):
    """The election may have cut off a segment that superseded rows, and another one may be in its place."""
    topic.fold((b"a", b"1"), (b"b", b"1"))
    topic.fold((b"a", b"2"))
    topic.clean_up()
    state, entry = topic.handle.journal.state, topic.handle.journal.number
    one = topic.partition
    cut = msgspec.structs.replace(one, segments=one.segments[:1], leader_epoch=one.leader_epoch + 1)
    changed = msgspec.structs.replace(state, partitions=(cut, *state.partitions[1:]))
    assert delta_table.publish(topic.store, topic.handle, changed, "0", entry=entry + 1, now=0)
    assert topic.rows() == [(0, b"a", b"1"), (1, b"b", b"1")]


def test_if_no_column_deletes_keys_any_more_the_rows_that_did_are_in_the_table():
    topic = StateTable(has_versions=True)
    topic.write([(b"a", b"1"), (b"b", None)], versions=[1, 1])
    assert topic.do(topic.fold_job())
    topic.clean_up()
    assert topic.vectors() == [[1]]
    topic.handle.alter_config({"delete.when": ""})
    topic_cleanup.clean_up_topic(topic.handle)
    assert topic.vectors() == [[]]


def test_a_vector_that_is_wrong_is_derived_again(topic, caplog):
    topic.fold((b"a", b"1"), (b"b", b"1"))
    topic.fold((b"a", b"2"))
    topic.clean_up()
    (key,) = topic.store.list(f"{topic.folder}_delta_log/")
    actions = delta_log.decode(topic.store.read(key), "it")
    vectors = [each.add.deletion_vector for each in actions if each.add is not None]
    wrong = msgspec.structs.replace(vectors[0], path_or_inline_dv="0" * 45)
    forged = [
        msgspec.structs.replace(each, add=msgspec.structs.replace(each.add, deletion_vector=wrong))
        if each.add is not None and each.add.deletion_vector is not None
        else each
        for each in actions
    ]
    topic.store.put(key, delta_log.encode(forged))
    topic.fold((b"b", b"2"))
    topic_cleanup.clean_up_topic(topic.handle)
    assert "its deletion vector is not one that pyspark-log has written" in caplog.text
    topic.fold((b"c", b"1"))
    topic.clean_up()


def test_a_partition_with_a_damaged_file_is_not_in_the_table_and_the_cleanup_goes_on(topic, caplog):
    topic.fold((b"a", b"1"), (b"b", b"1"))
    topic.clean_up()
    topic.fold((b"a", b"2"))
    key = topic.handle.segment(0, topic.partition.keyed_segments[1].name)
    data = topic.store.read(key)
    topic.store.put(key, data[:-20] + bytes(20))
    topic_cleanup.clean_up_topic(topic.handle)
    assert topic.rows() == []
    assert "lacks partition 0" in caplog.text
    topic.store.put(key, data)
    topic.clean_up()


# Whatever happens


@pytest.mark.parametrize(
    ("fault", "every"), [(Fault.KILL_AFTER, 3), deep(Fault.KILL_BEFORE, 1), deep(Fault.KILL_AFTER, 1)]
)
def test_a_process_may_be_killed_at_each_step_of_a_cleanup(fault, every, monkeypatch):
    monkeypatch.setattr(delta_log, "CHECKPOINT_EVERY", 2)
    for made in itertools.count(step=every):
        countdown = Countdown(fault)
        store = countdown.store()
        topic = StateTable(store)
        for number in range(4):
            topic.fold(*((b"%d" % key, b"%d" % number) for key in range(number, number + 3)), (b"gone", None))
            if number != 2:
                topic_cleanup.clean_up_topic(topic.handle)
        before = topic.rows()
        topic.do(topic.merge_job(0, 2))
        topic.fold((b"2", b"new"), (b"4", None))
        countdown.left = made
        try:
            topic_cleanup.clean_up_topic(topic.handle)
        except Killed:
            countdown.left = None
        else:
            break
        topic.reopen(store)
        assert topic.rows() in (before, topic.wanted())
        topic.clean_up()
    assert made >= 5, "it has become shorter"


@st.composite
def stories(draw):
    """Return steps: batches of keys, folds, merges, cleanups, processes that come late, and the passing of time."""
    key = st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"", None])
    rows = st.lists(st.tuples(key, st.booleans()), min_size=1, max_size=6)
    step = st.one_of(
        st.tuples(st.just("fold"), rows),
        st.tuples(st.just("fold"), rows),
        st.tuples(st.just("write"), rows),
        st.tuples(st.just("merge"), st.tuples(st.integers(0, 3), st.integers(1, 3))),
        st.tuples(st.just("late"), st.integers(0, 3)),
        st.tuples(st.just("clean up"), st.none()),
        st.tuples(st.just("clean up"), st.none()),
        st.tuples(st.just("policy"), st.sampled_from(["compact", "delete"])),
        st.tuples(st.just("sleep"), st.sampled_from([1, 600, 1200])),
    )
    return draw(st.lists(step, min_size=4, max_size=25))


@pytest.mark.parametrize("examples", [30, deep(150)])
def test_whatever_has_happened_the_table_is_the_newest_state(examples):
    settings(max_examples=examples)(given(stories())(hold_the_newest_state))()


def hold_the_newest_state(story):
    topic, late = StateTable(file_delete_delay_ms="500"), []
    for number, (what, how) in enumerate(story):
        is_compacted = topic.handle.config.is_compacted
        if what in ("fold", "write"):
            topic.write([(key, b"%d" % number if has_value else None) for key, has_value in how])
        if what == "sleep":
            topic.now_ms += how
        elif what == "policy":
            topic.handle.submit(AlterConfig({"cleanup.policy": how}))
        elif what == "clean up" and is_compacted:
            topic.clean_up()
        elif what == "clean up":
            topic_cleanup.clean_up_topic(topic.handle)
            assert topic.rows() == [row[:3] for row in topic.keyed_rows()]
        elif what == "late" and late:
            topic.swap_in(late.pop(how % len(late)))
        elif what in ("fold", "merge"):
            job = topic.merge_job(*how) if what == "merge" else topic.fold_job()
            if job is not None and number % 3 == 0:
                late.append(topic.make(job))
            else:
                topic.do(job)
    topic.handle.submit(AlterConfig({"cleanup.policy": "compact"}))
    topic.do(topic.fold_job())
    topic.clean_up()
    assert topic.rows() == sorted(row[:3] for row in topic.expected().values())
