"""A stream that begins with the newest row of each key, and continues with every row that is written after it.

Its micro-batches are planned and read step by step, without Spark.
"""

import json

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_log import Producer
from pyspark_log.writing.rows import Rows
from pyspark_log_coordinator.group.offsets import Offset, ResetOffsets
from pyspark_log_coordinator.maintenance import topic_cleanup, topic_roll
from pyspark_log_coordinator.maintenance.roll_task import roll_task_of, run_roll
from pyspark_log_coordinator.model.topic_config import parse
from pyspark_log_coordinator.sync import reassigner
from pyspark_log_coordinator.topic.machine import DeleteRecords, MaintainSegments
from pyspark_log_storage.errors import DataLoss, InvalidInput, InvalidOption
from tests.support.coordinator.compacted_topic import fold_job
from tests.support.direct import Stream, read
from tests.support.plain_log import PlainLog, record

OPTIONS = {"subscribe": "t", "startingOffsets": "latest-by-key"}


class KeyedLog(PlainLog):
    """Topic t with cleanup.policy=compact. The value of a row is its number, or null if it deletes its key."""

    def __init__(self, path, partitions=1, **config):
        super().__init__(path)
        given = {"cleanup_policy": "compact", "file_delete_delay_ms": 0, "min_cleanable_dirty_ratio": 0.0} | config
        self.handle = self.create("t", partitions, **given)
        self.written = {number: [] for number in range(partitions)}
        """By partition the key of each row, and whether it deletes it."""

    def add(self, text, partition=0):
        """Write a row for each letter; a capital one deletes its key."""
        written = self.written.setdefault(partition, [])
        first = len(written)
        values = [None if each.isupper() else b"%d" % at for at, each in enumerate(text, first)]
        batch = record(values, [each.lower().encode() for each in text])
        self.append_rows("t", Rows(batch, None, pa.array([partition] * len(text), pa.int32())))
        written += [(each.lower(), each.isupper()) for each in text]

    def fold(self, pieces=None):
        """Compact the oldest batches of partition 0 that are not compacted, or all."""
        job = fold_job(self.handle, self.log.environment.now_ms(), pieces)
        if job is not None:
            swap = run_roll(self.log.store_at, roll_task_of(self.handle, job), self.log.environment)
            assert self.handle.submit(MaintainSegments((swap,))).events
            topic_cleanup.clean_up_topic(self.handle)

    def compact(self):
        """Do all folds and merges that are due."""
        topic_roll.roll_and_merge(self.handle)
        topic_cleanup.clean_up_topic(self.handle)

    def newest(self, end, partition=0):
        """Return the offset of the newest row below `end` of each key that it does not delete."""
        found = {key: (at, gone) for at, (key, gone) in enumerate(self.written[partition][:end])}
        return sorted(at for at, gone in found.values() if not gone)


@pytest.fixture
def log(tmp_path):
    return KeyedLog(tmp_path / "log")


def stream(log, start=None, **options):
    return Stream(log.path, start, **OPTIONS | options)


def offsets(rows):
    return [row["offset"] for row in rows]


def all_batches(stream):
    return [offsets(batch) for batch in iter(stream.batch, None)]


def state_of(offset):
    """Return the version of an offset, and where the state ends by partition."""
    return offset["version"], offset["topics"]["t"].get("state")


@pytest.mark.parametrize("compacted", [0, 2, 3])
def test_the_newest_rows_are_one_batch_and_then_every_row(log, compacted):
    for text in ("aabc", "bBac", "da"):
        log.add(text)
    for _ in range(compacted):
        log.fold(1)
    begun = stream(log)
    assert offsets(begun.batch()) == [7, 8, 9]
    log.add("aaA")
    assert offsets(begun.batch()) == [10, 11, 12]


@pytest.mark.parametrize("folds", [0, 1, 2])
def test_the_state_may_take_several_batches(log, folds):
    log.add("abcab")
    log.add("acdb")
    for _ in range(folds):
        log.fold(1)
    assert all_batches(stream(log, maxOffsetsPerTrigger=3)) == [[], [5], [6, 7, 8]]


def test_a_task_for_a_part_of_the_state_knows_the_rest_of_it(log):
    log.add("abcabdab")
    begun = stream(log, maxRecordsPerPartition=3)
    end = begun.reader.latestOffset(begun.start, begun.limit)
    splits = begun.reader.partitions(begun.start, end)
    found = [
        [row for batch in begun.reader.read(each) for row in batch.column("offset").to_pylist()] for each in splits
    ]
    assert found == [[], [2], [5, 6, 7]]


def test_the_offset_has_the_end_of_the_state_until_a_batch_begins_there(log):
    log.add("abab")
    begun = stream(log, maxOffsetsPerTrigger=3)
    begun.batch()
    assert state_of(begun.start) == (2, {"0": [4, 0]})
    begun.batch()
    assert state_of(begun.start) == (2, {"0": [4, 0]})
    log.add("a")
    begun.batch()
    assert state_of(begun.start) == (1, None)


def test_a_restart_continues_in_the_state_wherever_the_query_would_start_now(log):
    log.add("abab")
    begun = stream(log, maxOffsetsPerTrigger=3)
    assert offsets(begun.batch()) == [2]
    log.add("bb")
    restarted = stream(log, begun.start, startingOffsets="earliest", maxOffsetsPerTrigger=2)
    assert all_batches(restarted) == [[3, 4], [5]]


def test_available_now_takes_the_state_of_its_beginning(log):
    log.add("ab")
    begun = stream(log)
    begun.reader.prepareForTriggerAvailableNow()
    log.add("aab")
    assert all_batches(begun) == [[0, 1]]
    assert all_batches(stream(log, begun.start)) == [[2, 3, 4]]


def test_partitions_have_their_own_states_and_later_ones_none(tmp_path):
    log = KeyedLog(tmp_path / "log", 2)
    log.add("aa", 0)
    log.add("bbb", 1)
    begun = stream(log)
    assert [(row["partition"], row["offset"]) for row in begun.batch()] == [(0, 1), (1, 2)]
    reassigner.add_partitions(log.handle, 3)
    log.add("cc", 2)
    assert [(row["partition"], row["offset"]) for row in begun.batch()] == [(2, 0), (2, 1)]


def planned(log, **options):
    """Read a batch, begin the one after it, and return its offsets: Spark repeats it when the query starts again."""
    begun = stream(log, **options)
    begun.batch()
    end = begun.reader.latestOffset(begun.start, begun.limit)
    return begun.start, end, begun.between(begun.start, end)


def test_a_task_finds_rows_of_the_state_that_were_only_moved(tmp_path):
    log = KeyedLog(tmp_path / "log", flush_messages=1)
    log.add("ab")
    log.fold()
    for text in ("ab", "c", "a"):
        log.add(text)
    begun = stream(log, maxOffsetsPerTrigger=2)
    begun.batch()
    end = begun.reader.latestOffset(begun.start, begun.limit)
    splits = begun.reader.partitions(begun.start, end)
    log.handle.alter_config({"cleanup.policy": "delete"})
    log.compact()
    moved = begun.reader.partitions(begun.start, end)
    assert moved[0].choice.among.segments != splits[0].choice.among.segments
    assert [row for each in splits for batch in begun.reader.read(each) for row in batch["offset"].to_pylist()] == [3]


def test_the_state_is_kept_where_older_rows_expire(log):
    log.add("ab")
    log.add("cac")
    log.add("ab")
    begun = stream(log, maxOffsetsPerTrigger=1)
    begun.batch()
    log.handle.submit(DeleteRecords(0, 2))
    with pytest.raises(DataLoss, match="offset 1 has expired, the log begins at 2"):
        begun.batch()
    assert all_batches(stream(log, begun.start, failOnDataLoss="false")) == [[4, 5, 6]]


def test_a_rewind_of_the_group_ends_the_state(log):
    log.add("aabab")
    begun = stream(log, maxOffsetsPerTrigger=3, **{"group.id": "g"})
    assert offsets(begun.batch()) == []
    log.log.group("g").submit(ResetOffsets({log.handle.topic_id: {0: Offset(1)}}, running=True))
    assert all_batches(begun) == [[1, 2, 3], [4]]


def test_other_topics_and_reads_are_refused_with_what_to_do(log):
    log.create("u")
    with pytest.raises(InvalidInput, match=r"'u' has cleanup.policy=delete.*set it with: pyspark-log topics alter u"):
        stream(log, subscribe="t,u").batch()
    with pytest.raises(InvalidOption, match="it is not a known value; expected earliest, or JSON"):
        read("/nowhere", **OPTIONS)
    with pytest.raises(InvalidOption, match=r"'latest-by-key' of topic t is no offset"):
        stream(log, startingOffsets='{"t": "latest-by-key"}')


KEYS = st.text(st.sampled_from("abcdABC"), min_size=1, max_size=6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), KEYS),
        st.tuples(st.just("fold"), st.sampled_from([1, 2, None])),
        st.tuples(st.just("compact"), st.none()),
        st.tuples(st.just("batch"), st.integers(1, 7)),
        st.tuples(st.just("repeat"), st.tuples(st.integers(1, 7), st.sampled_from(["", "fold", "compact"]))),
    ),
    max_size=12,
)


class Story:
    """A stream, what its sink has by batch, and what its rows must be."""

    def __init__(self, log):
        self.log, self.start, self.sink = log, None, []
        self.state_end = 0

    def batch(self, limit, then=""):
        """Let a batch be planned and read; with `then` the query stops, rows are compacted, and it is repeated."""
        begun = stream(self.log, self.start, maxOffsetsPerTrigger=limit)
        if self.start is None:
            self.state_end = len(self.log.written[0])
        end = begun.reader.latestOffset(begun.start, begun.limit)
        if end == begun.start:
            return False
        end = json.loads(json.dumps(end))
        rows = begun.between(begun.start, end)
        self.check(rows, begun.start, end)
        if then:
            getattr(self.log, then)()
            again = stream(self.log, self.start)
            try:
                assert again.between(begun.start, end) == rows
            except DataLoss:
                again = stream(self.log, self.start, failOnDataLoss="false")
                rows = again.between(begun.start, end)
                self.check(rows, begun.start, end)
        self.start = end
        self.sink += rows
        return True

    def check(self, rows, start, end):
        """Check the rows of a batch against what the log has of its range now, and what was written."""
        first = start["topics"]["t"]["end"]["0"][0] if "topics" in start else 0
        last = end["topics"]["t"]["end"]["0"][0]
        given = {"startingOffsets": {"t": {"0": first}}, "endingOffsets": {"t": {"0": last}}}
        there = read(self.log.path, subscribe="t", **{name: json.dumps(each) for name, each in given.items()})
        rows_there = {row["offset"]: row for row in there}
        newest = set(self.log.newest(self.state_end))
        found = offsets(rows)
        assert found == sorted(set(found)), "a row is there twice, or out of order"
        assert all(rows_there[row["offset"]] == row for row in rows)
        after = [at for at in rows_there if at >= self.state_end]
        assert [at for at in found if at >= self.state_end] == after, "a change is missing"
        chosen = {at for at in found if at < self.state_end}
        assert chosen <= newest, "a superseded row is there"
        written = self.log.written[0]
        for at in newest & rows_there.keys() - chosen:
            assert any(key == written[at][0] for key, _ in written[self.state_end :]), "a row of the state is missing"


@pytest.mark.slow
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(before=st.lists(st.tuples(KEYS, st.sampled_from(["", "fold", "compact"])), max_size=4), steps=STEPS)
def test_state_and_changes_are_the_newest_state_each_once(tmp_path_factory, before, steps):
    log = KeyedLog(tmp_path_factory.mktemp("log") / "log")
    for text, then in before:
        log.add(text)
        if then:
            getattr(log, then)()
    story = Story(log)
    for step, given_ in steps:
        match step:
            case "write":
                log.add(given_)
            case "fold":
                log.fold(given_)
            case "compact":
                log.compact()
            case "batch":
                story.batch(given_)
            case "repeat":
                story.batch(*given_)
    while story.batch(100):
        pass
    state = {row["key"]: row for row in story.sink}
    assert sorted(row["offset"] for row in state.values() if row["value"] is not None) == log.newest(None)


class TypedLog(KeyedLog):
    """Topic t with the columns id, seq and gone, and whatever says what these mean."""

    def __init__(self, path, **config):
        PlainLog.__init__(self, path)
        self.columns = pa.schema([("id", pa.int64()), ("seq", pa.int64()), ("gone", pa.bool_())])
        given = {"cleanup.policy": "compact", "key.column": "id", "min.cleanable.dirty.ratio": "0"} | config
        self.handle = self.log.create_topic("t", 1, parse(given), columns=self.columns)

    def add(self, *rows):
        columns = [
            pa.array(list(each), field.type) for each, field in zip(zip(*rows, strict=True), self.columns, strict=True)
        ]
        with Producer(self.path) as producer:
            producer.send_batch("t", pa.record_batch(columns, self.columns))
        self.handle.refresh()


def offsets_between(stream, start, end):
    splits = stream.reader.partitions(start, end)
    return [at for each in splits for rows in stream.reader.read(each) for at in rows["offset"].to_pylist()]


def planned_after(log, rows, **options):
    """Return the begin and end of the batch that follows `rows` rows, and its rows' offsets, as `planned`."""
    begun = stream(log, maxOffsetsPerTrigger=rows)
    first = begun.reader.latestOffset(begun.start, begun.limit)
    offsets_between(begun, begun.start, first)
    end = begun.reader.latestOffset(first, begun.limit)
    found = offsets_between(begun, first, end)
    return (*(json.loads(json.dumps(each)) for each in (first, end)), found)


VERSIONED = {"compaction.version.column": "seq"}


@pytest.mark.parametrize("folds", [0, 1])
def test_an_older_version_that_came_after_the_newest_one_is_no_row_of_the_state(tmp_path, folds):
    """The newest row of its key may be in a batch before."""
    log = TypedLog(tmp_path / "log", **VERSIONED)
    log.add((1, 9, None), (2, 5, None))
    log.add((1, 3, None), (2, 6, None))
    for _ in range(folds):
        log.fold(1)
    start, end, found = planned_after(log, 2)
    assert found == [3]
    assert offsets_between(stream(log, start), start, end) == [3]


def test_rows_of_larger_versions_that_expired_before_a_batch_is_repeated_are_a_loss(tmp_path):
    log = TypedLog(tmp_path / "log", **VERSIONED)
    log.add((1, 9, None), (2, 5, None))
    log.add((1, 3, None), (2, 6, None))
    start, end, found = planned_after(log, 2)
    log.handle.submit(DeleteRecords(0, 1))
    assert found == [3]
    with pytest.raises(DataLoss, match=r"rows before offset 1 have expired or were deleted after a batch"):
        offsets_between(stream(log, start), start, end)
    assert offsets_between(stream(log, start, failOnDataLoss="false"), start, end) == [2, 3]


@pytest.mark.parametrize("config", [VERSIONED, {}])
def test_rows_before_a_repeated_batch_may_be_compacted_if_they_have_no_versions(tmp_path, config):
    """A row that deletes its key may be gone then, though it has a larger version than one of the batch."""
    log = TypedLog(tmp_path / "log", **config, **{"delete.when": "gone"})
    log.add((1, 9, True), (2, 5, None))
    log.add((1, 3, None), (2, 6, None))
    start, end, found = planned_after(log, 2)
    log.fold(1)
    again = stream(log, start)
    if config:
        assert found == [3]
        with pytest.raises(DataLoss, match=r"offsets 0 to 1 were compacted after a batch with them was planned"):
            offsets_between(again, start, end)
    else:
        assert found == offsets_between(again, start, end) == [2, 3]


@pytest.mark.parametrize(
    ("setting", "now", "planned", "rows"),
    [("delete.when", "", [3], [2, 3]), ("compaction.version.column", "", [3], [2, 3])],
)
def test_a_batch_of_the_state_that_is_repeated_with_another_meaning_of_its_columns_is_a_loss(
    tmp_path, setting, now, planned, rows
):
    then = {"delete.when": "gone", "compaction.version.column": "seq"}[setting]
    log = TypedLog(tmp_path / "log", **{setting: then})
    log.add((1, 9, None), (2, 5, True))
    log.add((1, 3, True), (2, 6, None))
    start, end, found = planned_after(log, 2)
    log.handle.alter_config({setting: now})
    assert found == planned
    with pytest.raises(DataLoss, match=rf"{setting} was '{then}' when a batch of the newest state was planned"):
        offsets_between(stream(log, start), start, end)
    assert offsets_between(stream(log, start, failOnDataLoss="false"), start, end) == rows


def test_a_batch_of_the_state_that_an_older_version_planned_is_repeated(tmp_path):
    """Its offset has no name of the version column."""
    log = TypedLog(tmp_path / "log", **VERSIONED)
    log.add((1, 9, None), (2, 5, None))
    log.add((1, 3, None), (2, 6, None))
    start, end, found = planned_after(log, 2)
    for offset in (start, end):
        del offset["topics"]["t"]["version_column"]
    assert offsets_between(stream(log, start), start, end) == found == [3]
