"""The Delta table of a compacted topic is its newest state, as of the compacted end, after whatever has happened."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log_coordinator.maintenance import delta_table, state_vectors, topic_cleanup
from pyspark_log_coordinator.topic.machine import AlterConfig, DeleteRecords
from pyspark_log_storage.columns.key_index import NONE
from pyspark_log_storage.delta import delta_log
from pyspark_log_storage.layout import topic_folder
from pyspark_log_storage.parquet import keyed_segment
from pyspark_log_storage.stores.faults import Fault
from tests.support.coordinator.compacted_topic import CompactedTopic
from tests.support.countdown import Countdown, Killed
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


def test_the_table_is_as_of_the_last_compaction(topic):
    topic.fold((b"a", b"1"), (b"b", b"1"))
    topic.write([(b"a", b"2")])
    topic.do(topic.roll_job(1))
    topic.write([(b"b", b"2")])
    topic.clean_up()
    assert topic.rows() == [(0, b"a", b"1"), (1, b"b", b"1")]
    topic.do(topic.fold_job())
    topic.clean_up()
    assert topic.rows() == [(2, b"a", b"2"), (3, b"b", b"2")]


def test_a_last_row_that_is_older_than_what_was_there_is_not_in_the_table():
    topic = StateTable(has_versions=True)
    for key, version in ((b"a", 5), (b"b", 5), (b"a", 4), (b"b", 6)):
        topic.write([(key, b"%d" % version)], [version])
        topic.do(topic.fold_job())
        topic.clean_up()
    assert topic.rows() == [(0, b"a", b"5"), (3, b"b", b"6")]
    assert topic.vectors() == [[], [0], [0], []]


def test_a_merge_leaves_the_table_as_it_was(topic):
    for number in range(4):
        topic.fold(*((b"%d" % key, b"%d" % number) for key in range(number, number + 3)))
    topic.clean_up()
    before = topic.rows()
    for first, count in ((1, 2), (0, 2), (0, 2)):
        topic.do(topic.merge_job(first, count))
        topic.clean_up()
        assert topic.rows() == before
    assert len(topic.vectors()) == 1


def test_a_fold_that_a_merge_does_not_know_supersedes_rows_of_its_segment(topic):
    topic.fold((b"a", b"1"), (b"b", b"1"))
    topic.fold((b"c", b"1"), (b"d", b"1"))
    topic.clean_up()
    topic.write([(b"b", b"2"), (b"c", None)])
    fold, merge = topic.make(topic.fold_job()), topic.make(topic.merge_job(0, 2))
    for swap in (fold, merge):
        assert topic.swap_in(swap)
        topic.clean_up()
    assert topic.vectors() == [[1, 2], [1]]


def test_a_file_of_which_all_rows_are_dead_stays_with_a_vector_of_all(topic):
    topic.fold((b"a", b"1"), (b"b", b"1"))
    topic.fold((b"b", None), (b"a", None))
    topic.clean_up()
    assert topic.rows() == []
    assert topic.vectors() == [[0, 1], [0, 1]]


def test_a_row_without_a_key_that_a_fold_had_to_keep_is_in_no_state(topic):
    topic.fold((None, b"1"), (None, b"2"))
    topic.fold((b"a", b"1"), (b"b", b"1"))
    assert topic.keyed_rows()[0][:3] == (1, None, b"2")
    topic.clean_up()
    assert topic.vectors() == [[0], []]
    topic.do(topic.merge_job(0, 2))
    topic.clean_up()
    assert topic.vectors() == [[]]
    topic.fold((b"b", b"2"))
    topic.clean_up()
    assert topic.vectors() == [[1], []]


def test_a_large_file_has_its_vector_in_several_containers(topic):
    rows = 150_000
    topic.fold(*((b"%d" % key, None if key % 7 == 0 else b"1") for key in range(rows)))
    topic.fold(*((b"%d" % key, b"2") for key in range(60_000, 90_000)))
    topic.clean_up()
    first, second = topic.vectors()
    assert first == sorted({*range(0, rows, 7), *range(60_000, 90_000)})
    assert second == []


def test_statistics_of_a_keyed_segment_are_bounds_that_rows_need_not_reach(topic):
    topic.fold((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    topic.clean_up()
    (added,) = delta_log.read(topic.store, topic.folder).files.values()
    stats = msgspec.json.decode(added.stats)
    assert (stats["numRecords"], stats["tightBounds"]) == (2, False)
    assert (stats["minValues"]["offset"], stats["maxValues"]["offset"]) == (0, 2)


def test_programs_that_do_not_know_vectors_are_told_so(topic):
    topic.fold((b"a", b"1"))
    topic.clean_up()
    table = delta_log.read(topic.store, topic.folder)
    assert (table.protocol.min_reader, table.protocol.reader_features) == (3, ("deletionVectors",))
    assert table.metadata.configuration["delta.enableDeletionVectors"] == "true"


# The work follows what has changed


@pytest.fixture
def looked_into(monkeypatch):
    """Return the names of segments of which something was read since the last call."""
    found = set()

    def noting(function):
        def noted(store, key, *rest):
            found.add(key.rpartition("/")[2])
            return function(store, key, *rest)

        return noted

    monkeypatch.setattr(state_vectors.parquet_footer, "read", noting(state_vectors.parquet_footer.read))

    def taken():
        names = sorted(found)
        found.clear()
        return names

    return taken


def test_without_a_compaction_nothing_is_read(topic, looked_into):
    topic.fold((b"a", b"1"), (b"b", None))
    topic.clean_up()
    topic.write([(b"a", b"2")])
    before, _ = topic.objects().keys(), looked_into()
    topic_cleanup.clean_up_topic(topic.handle)
    assert looked_into() == []
    assert topic.objects().keys() - before == set()


def test_a_fold_is_read_and_the_files_of_which_it_supersedes_rows(topic, looked_into):
    for name in (b"a", b"b", b"c"):
        topic.fold((name, b"1"), (name + b"2", b"1"))
    topic.clean_up()
    topic.fold((b"b", b"2"), (b"d", b"1"))
    looked_into()
    topic_cleanup.clean_up_topic(topic.handle)
    _, second, _, fourth = (each.name for each in topic.partition.keyed_segments)
    assert looked_into() == [second, fourth]
    version = max(topic.store.list(f"{topic.folder}_delta_log/"))
    changed = [msgspec.json.decode(each) for each in topic.store.read(version).splitlines()]
    assert [each["remove"]["path"] for each in changed if "remove" in each] == [f"0/{second}"]
    assert [each["add"]["path"] for each in changed if "add" in each] == [f"0/{second}", f"0/{fourth}"]


def test_values_are_read_only_where_rows_may_delete_their_keys(topic, monkeypatch):
    monkeypatch.setattr(keyed_segment, "read_rows", lambda *_: pytest.fail("rows are read"))
    topic.fold((b"a", b"1"), (b"b", b"1"))
    topic.fold((b"a", b"2"))
    topic_cleanup.clean_up_topic(topic.handle)
    monkeypatch.undo()
    assert topic.rows() == topic.wanted()


def test_tables_of_two_topics_are_derived_at_once(monkeypatch):
    topics = [StateTable(), StateTable()]
    for topic in topics:
        topic.fold((b"a", b"1"), (b"b", None))
    read, both = state_vectors.parquet_footer.read, threading.Barrier(2, timeout=20)

    def waiting(store, key):
        both.wait()
        return read(store, key)

    monkeypatch.setattr(state_vectors.parquet_footer, "read", waiting)

    def derive(topic):
        folder = f"{topic.folder}0/"
        state = topic.handle.state
        return state_vectors.vectors(topic.store, folder, state, topic.partition.keyed_segments, {})

    monkeypatch.setattr(state_vectors.keyed_segment, "read_superseded", lambda *_: NONE)  # which reads a footer, too
    with ThreadPoolExecutor(2) as pool:
        (first,), (second,) = pool.map(derive, topics)
    assert first == second is not None


# What is known may be wrong


def test_after_an_election_nothing_is_taken_from_the_table(topic):
    """The election may have cut off a segment that superseded rows, and another one may be in its place."""
    topic.fold((b"a", b"1"), (b"b", b"1"))
    topic.fold((b"a", b"2"))
    topic.clean_up()
    state, entry = topic.handle.journal.state, topic.handle.journal.number
    one = topic.partition
    cut = msgspec.structs.replace(one, segments=one.segments[:1], leader_epoch=one.leader_epoch + 1)
    changed = msgspec.structs.replace(state, partitions=state.partitions.replace({0: cut}))
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


def test_a_process_with_an_older_state_whose_files_are_gone_changes_nothing(topic):
    topic.fold((b"a", b"1"), (b"b", b"1"))
    topic.fold((b"a", b"2"))
    state, entry = topic.handle.refresh(), topic.handle.journal.number
    topic.do(topic.merge_job(0, 2))
    topic.clean_up()
    assert not delta_table.publish(topic.store, topic.handle, state, "0", entry=entry, now=0)
    assert topic.rows() == topic.wanted()


# Other policies


def test_with_another_policy_the_table_has_what_is_read(topic):
    topic.fold((b"a", b"1"), (b"b", b"1"))
    topic.fold((b"a", b"2"), (b"c", None))
    topic.clean_up()
    topic.handle.submit(AlterConfig({"cleanup.policy": "delete", "segment.format": "parquet"}))
    topic.write([(b"a", b"3"), (None, b"x")])
    job = topic.roll_job(1)
    topic.do(msgspec.structs.replace(job, parquet=True))
    topic_cleanup.clean_up_topic(topic.handle)
    assert topic.rows() == [row[:3] for row in (*topic.keyed_rows(), *topic.written[4:])]
    table = delta_log.read(topic.store, topic.folder)
    assert "deletionVectors" in table.protocol.reader_features  # for those who read older versions
    assert table.metadata.configuration == {}
    topic.handle.submit(AlterConfig({"cleanup.policy": "compact"}))
    topic.clean_up()
    topic.do(topic.fold_job())
    topic.clean_up()


def test_a_topic_that_becomes_a_compacted_one_has_an_empty_table_until_it_is_compacted():
    topic = StateTable(cleanup_policy="delete", segment_format="parquet")
    topic.write([(b"a", b"1"), (b"a", b"2")])
    topic.do(msgspec.structs.replace(topic.roll_job(1), parquet=True))
    topic_cleanup.clean_up_topic(topic.handle)
    assert len(topic.rows()) == 2
    topic.handle.submit(AlterConfig({"cleanup.policy": "compact"}))
    topic.clean_up()
    assert topic.rows() == []
    topic.maintain()
    topic.clean_up()
    assert topic.rows() == [(1, b"a", b"2")]


def test_rows_that_expire_leave_the_table_with_their_segment():
    topic = StateTable(cleanup_policy="compact,delete", retention_ms="-1")
    topic.fold((b"a", b"1"), (b"b", b"1"))
    topic.fold((b"c", b"1"))
    topic.clean_up()
    topic.handle.submit(DeleteRecords(0, 2))
    topic_cleanup.clean_up_topic(topic.handle)
    assert topic.rows() == [(2, b"c", b"1")]


# Whatever happens


@pytest.mark.parametrize("fault", [Fault.KILL_BEFORE, Fault.KILL_AFTER])
def test_a_process_may_be_killed_at_each_step_of_a_cleanup(fault, monkeypatch):
    monkeypatch.setattr(delta_log, "CHECKPOINT_EVERY", 2)
    for made in itertools.count():
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


@settings(max_examples=150, deadline=None)
@given(stories())
def test_whatever_has_happened_the_table_is_the_newest_state(story):
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
