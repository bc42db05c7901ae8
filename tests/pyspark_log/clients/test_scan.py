"""`scan`: the rows of a topic as an Arrow stream, beside what was written and what other readers find."""

import tempfile
from datetime import datetime, timezone

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log import Consumer, scan
from pyspark_log.reading import fetch
from pyspark_log.writing.rows import Rows
from pyspark_log_coordinator.maintenance import topic_cleanup, topic_roll
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_coordinator.topic.machine import AlterConfig
from pyspark_log_storage.errors import CorruptObject, DataLoss, InvalidInput, UnknownTopic, UnknownVersion
from tests.support.direct import read
from tests.support.plain_log import NOON_MS, PlainLog, record
from tests.support.pyspark_log import typed_frames

NAMES = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
PARTITIONS = 2
HEADERS = [None, [], [{"key": "h", "value": b"1"}], [{"key": "", "value": None}, {"key": "h", "value": b"2"}]]


class Topic(PlainLog):
    """A topic t whose segments are small, and what was written to it."""

    def __init__(self, path, parquet=True):
        super().__init__(path)
        kind = "parquet" if parquet else "log"
        config = {"segment_format": kind, "segment_bytes": 4096, "flush_messages": 1, "file_delete_delay_ms": 0}
        self.handle = self.create("t", PARTITIONS, **config)
        self.rows = {p: [] for p in range(PARTITIONS)}

    def add(self, partition, count, headers=None):
        """Append rows, one a second after the last; `headers` are repeated, None writes none."""
        known = self.rows[partition]
        numbers = range(len(known), len(known) + count)
        values = [b"%d of %d" % (number, partition) for number in numbers]
        keys = [None if number % 3 == 0 else b"k%d" % (number % 5) for number in numbers]
        times = [NOON_MS + 1000 * number for number in numbers]
        given = None if headers is None else [HEADERS[(headers + number) % len(HEADERS)] for number in numbers]
        self.append_rows("t", Rows(record(values, keys, times, given), None, pa.array([partition] * count, pa.int32())))
        moments = [datetime.fromtimestamp(time / 1000, timezone.utc) for time in times]
        own = [None] * count if given is None else [each or None for each in given]
        for number, key, value, moment, found in zip(numbers, keys, values, moments, own, strict=True):
            known.append(dict(zip(NAMES, [key, value, "t", partition, number, moment, 0, found], strict=True)))

    def move(self):
        move(self.handle)

    def written(self, starts=None, ends=None):
        """The rows from starts to ends, by partition, in the order of a scan."""
        return [
            row
            for p, rows in self.rows.items()
            for row in rows[(starts or {}).get(p, 0) : (ends or {}).get(p, len(rows))]
        ]


def move(handle):
    """Roll and merge what is due, and delete the files before."""
    topic_roll.roll_and_merge(handle)
    topic_cleanup.clean_up_topic(handle)


@pytest.fixture
def topic(tmp_path):
    return Topic(tmp_path)


def rows_of(scanned):
    return pa.table(scanned).to_pylist()


def picked(rows, names):
    return [{name: row[name] for name in names} for row in rows]


def do(topic, steps):
    for step, partition, number in steps:
        match step:
            case "add":
                topic.add(partition, number)
            case "add with headers":
                topic.add(partition, number, headers=number)
            case "move":
                topic.move()


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "add with headers", "move"]), st.integers(0, PARTITIONS - 1), st.integers(1, 60)),
    max_size=6,
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(before=STEPS, meanwhile=STEPS, after=STEPS, data=st.data())
def test_a_scan_has_the_rows_that_were_there_whatever_is_written_and_moved(before, meanwhile, after, data):
    with tempfile.TemporaryDirectory() as folder:
        topic = Topic(folder, parquet=data.draw(st.booleans()))
        do(topic, before)
        start = {p: data.draw(st.integers(0, len(rows))) for p, rows in topic.rows.items()}
        end = {p: data.draw(st.integers(start[p], len(rows))) for p, rows in topic.rows.items()}
        names = data.draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
        expected = picked(topic.written(start, end), names)
        scanned = scan(topic.path, "t", start, end, columns=names)
        assert scanned.num_rows == len(expected)
        do(topic, meanwhile)
        batches = iter(scanned)
        found = [batch.to_pylist() for batch in [next(batches, None)] if batch is not None]
        do(topic, after)
        found += [batch.to_pylist() for batch in batches]
        assert [row for each in found for row in each] == expected
        again = pa.table(scanned)
        assert again.schema == scanned.schema
        assert again.to_pylist() == expected
        assert rows_of(scan(topic.path, "t")) == topic.written()


def test_a_scan_has_the_rows_of_the_source_and_of_a_consumer(topic):
    for headers in (None, 1, None):
        topic.add(0, 300, headers)
        topic.add(1, 200)
        topic.move()
    topic.add(1, 10, headers=2)
    assert any(segment.is_parquet for segment in topic.handle.partitions[0].segments)
    assert topic.handle.partitions[1].chunks
    found = rows_of(scan(topic.path, "t"))
    assert found == topic.written()
    by_place = sorted(
        read(topic.path, subscribe="t", includeHeaders="true"), key=lambda row: (row["partition"], row["offset"])
    )
    assert found == by_place
    with Consumer(topic.path) as consumer:
        consumer.assign(consumer.partitions("t"), "earliest")
        consumed = []
        while more := consumer.poll():
            consumed += more
    assert sorted((row.partition, row.offset, row.key, row.value) for row in consumed) == [
        (row["partition"], row["offset"], row["key"], row["value"]) for row in found
    ]


def test_an_empty_topic_has_columns_and_no_row(topic):
    scanned = scan(topic.path, "t")
    assert pa.table(scanned).num_rows == scanned.num_rows == 0
    assert pa.table(scanned).schema.names == scanned.schema.names == NAMES
    assert scan(topic.path, "t", options={"includeHeaders": False}).schema.names == NAMES[:-1]


def test_rows_of_a_typed_topic_have_its_columns(tmp_path):
    path = tmp_path / "log"
    old = [{"x": number, "s": {"a": number}} for number in range(200)]
    new = [{"x": number + 0.5, "s": {"a": number, "b": "b"}, "more": number} for number in range(10)]
    typed_frames.write(path, "x INT, s STRUCT<a: INT>", old, schema="columns", num__partitions=1)
    before = scan(str(path), "t")
    log = PlainLog(path)
    handle = log.log.topic("t")
    handle.submit(AlterConfig({"segment.format": "parquet", "file.delete.delay.ms": "0", "flush.messages": "1"}))
    move(handle)
    assert handle.partitions[0].segments
    typed_frames.write(
        path, "x DOUBLE, s STRUCT<a: INT, b: STRING>, more INT", new, schema="columns", mergeSchema="true"
    )
    scanned = scan(str(path), "t")
    assert scanned.schema.names == ["topic", "partition", "offset", "timestamp", "x", "s", "more"]
    expected = [{"x": float(each["x"]), "s": {**each["s"], "b": None}, "more": None} for each in old] + new
    found = rows_of(scanned)
    assert picked(found, ["x", "s", "more"]) == expected
    assert found == read(path, subscribe="t")
    assert rows_of(scan(str(path), "t", columns=["more", "offset"])) == picked(found, ["more", "offset"])
    move(handle)
    assert picked(rows_of(before), ["x", "s"]) == old


def test_only_row_groups_between_the_bounds_are_read(topic, monkeypatch):
    for _ in range(10):
        topic.add(0, 100)
        topic.move()
    places = []
    read_one = fetch.read_one
    monkeypatch.setattr(fetch, "read_one", lambda *given: places.append(given[2]) or read_one(*given))
    assert rows_of(scan(topic.path, "t", {0: 450}, {0: 460})) == topic.written({0: 450, 1: 0}, {0: 460})
    assert sum(place.end_offset - place.base_offset for place in places) < 500


def test_rows_that_expired_since_are_an_error(topic):
    topic.add(0, 100)
    scanned = scan(topic.path, "t")
    topic.handle.submit(DeleteRecords(0, 60))
    topic.add(0, 1)
    topic.move()
    with pytest.raises(DataLoss, match="offsets 0 to 59 expired or were deleted"):
        list(scanned)


def test_damage_is_an_error_also_through_the_stream(topic):
    topic.add(0, 10)
    scanned = scan(topic.path, "t")
    for file in topic.files("t"):
        file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(CorruptObject):
        list(scanned)
    with pytest.raises(pa.ArrowException, match="topic 't', partition 0, offsets 0 to 9"):
        pa.table(scanned)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"columns": ["value", "x"]}, InvalidInput, "unknown column 'x'; the columns are key, value"),
        ({"columns": "value"}, InvalidInput, r"expected a list of names, such as \['value'\]"),
        ({"columns": ["value", "value"]}, InvalidInput, "columns has 'value' twice"),
        ({"partitions": []}, InvalidInput, "partitions is empty"),
        ({"partitions": [2]}, InvalidInput, "partition 2"),
        ({"start": "latest"}, InvalidInput, "expected 'earliest'"),
        ({"start": {0: 2}}, DataLoss, "has no offset 2"),
        ({"options": {"subscribe": "u"}}, InvalidInput, "options has subscribe"),
        ({"version": 10**6}, UnknownVersion, "no version"),
        ({"topic": "u"}, UnknownTopic, "'u'"),
        ({"topic": "t,u"}, InvalidInput, "invalid topic name 't,u'"),
    ],
)
def test_what_cannot_be_read_is_refused(topic, arguments, error, words):
    topic.add(0, 1)
    with pytest.raises(error, match=words):
        scan(topic.path, **{"topic": "t"} | arguments)


def test_a_scan_holds_no_more_than_a_few_chunks(topic):
    count, size = 30, 2**20
    for number in range(count):
        topic.append("t", {0: [bytes([number]) * size]})
    scanned = scan(topic.path, "t", columns=["value"])
    before = highest = pa.total_allocated_bytes()
    rows = 0
    for batch in scanned:
        rows += batch.num_rows
        highest = max(highest, pa.total_allocated_bytes())
        del batch
    assert rows == count
    assert highest - before < 20 * size
