"""The rows of a page, beside a plain model, and what is masked."""

from __future__ import annotations

import io

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from pyspark_log.browse import filters, rows
from pyspark_log.browse.masks import Mask, mask_of
from pyspark_log.writing import typed_json
from pyspark_log.writing.rows import Rows, TypedSchema
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_storage.errors import InvalidInput
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic
from tests.support.plain_log import PlainLog, record

SECRET = "s3cret"


def filled(batches):
    """Return a log whose topic t has these batches: of each row its partition, time (ms) and value."""
    log = PlainLog()
    log.create("t", 3)
    for batch in batches:
        append(log, batch)
    return log


def append(log, batch):
    found = record([value for _, _, value in batch], times_ms=[time for _, time, _ in batch])
    numbers = pa.array([number for number, _, _ in batch], pa.int32())
    log.append_rows("t", Rows(found, None, numbers))


def of_columns(columns, objects):
    """Return a topic of these columns and rows."""
    log = PlainLog()
    handle = log.log.create_topic("t", 1, columns=pa.schema(list(columns.items())))
    fields = [each for each in handle.schemas[-1] if each.name in {*columns, "timestamp"}]
    timed = [each | {"timestamp": number} for number, each in enumerate(objects, 1)]
    batch = pa.RecordBatch.from_pylist(timed, pa.schema(fields))
    log.append_rows("t", Rows(batch, None, None, typed=TypedSchema(0, handle.state.schemas[-1])))
    return log.log.topic("t", polls=True)


ROWS = st.tuples(st.integers(0, 2), st.integers(1, 30), st.sampled_from([b"a", b"ab", b"b"]))
BATCHES = st.lists(st.lists(ROWS, min_size=1, max_size=8), min_size=1, max_size=4)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    batches=BATCHES,
    backward=st.booleans(),
    has=st.sampled_from(["", "a", "b"]),
    limit=st.integers(1, 5),
    partition=st.sampled_from([None, 0, 2]),
    later=st.none() | st.lists(ROWS, min_size=1, max_size=3),
    deleted=st.none() | st.integers(0, 4),
)
def test_the_pages_together_have_each_row_once_in_the_order_of_its_partition(
    *, batches, backward, has, limit, partition, later, deleted
):
    log = filled(batches)
    stored = {number: [] for number in range(3)}
    for batch in batches:
        for number, _, value in batch:
            stored[number].append(value.decode())
    wanted = rows.Wanted(partition=partition, backward=backward, filters=filters.Filters(value_has=has), limit=limit)
    seen, at, first, low = {0: [], 1: [], 2: []}, None, True, 0
    while first or at is not None:
        found = rows.read(log.log.topic("t", polls=True), msgspec.structs.replace(wanted, at=at))
        for row in found.rows:
            assert row.columns["value"] == stored[row.partition][row.offset]
            seen[row.partition].append(row.offset)
        assert found.at != at or found.at is None, "the next page is the same one"
        at = found.at
        if first and later and backward:
            append(log, later)  # newer rows are not part of what is older
        if first and deleted is not None:
            low = min(deleted, len(stored[0]))
            log.log.topic("t").submit(DeleteRecords(0, low))
        first = False
    for number, values in stored.items():
        fits = partition in {None, number}
        expected = [offset for offset, value in enumerate(values) if has in value and fits]
        expected = expected[::-1] if backward else expected
        if number:
            assert seen[number] == expected
        else:  # rows that were deleted meanwhile may be shown or not
            assert seen[0] == sorted(set(seen[0]), reverse=backward)
            assert set(seen[0]) <= set(expected)
            assert {each for each in expected if each >= low} <= set(seen[0])


@pytest.mark.parametrize("backward", [True, False])
def test_the_rows_of_several_partitions_are_merged_by_their_timestamps(backward):
    log = filled([[(0, 3, b"c"), (0, 6, b"f"), (1, 1, b"a"), (1, 4, b"d"), (2, 2, b"b"), (2, 5, b"e")]])
    found = rows.read(log.log.topic("t"), rows.Wanted(backward=backward)).rows
    assert "".join(each.columns["value"] for each in found) == ("fedcba" if backward else "abcdef")


def test_of_more_partitions_than_a_page_merges_those_with_the_newest_rows_are_shown(monkeypatch):
    monkeypatch.setattr(rows, "PARTITIONS_MERGED", 2)
    log = filled([[(0, 3, b"c"), (1, 1, b"a"), (2, 2, b"b")]])
    found = rows.read(log.log.topic("t"), rows.Wanted())
    assert ([each.columns["value"] for each in found.rows], found.partitions) == (["c", "b"], 2)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"offset": "2"}, [2, 1, 0]),
        ({"offset": "2", "order": "oldest"}, [2, 3, 4]),
        ({"time": "3", "order": "oldest"}, [2, 3, 4]),
        ({"time": "3"}, [1, 0]),
        ({"time": "1970-01-01T00:00:00.002900Z", "order": "oldest"}, [1, 2, 3, 4]),
        ({"time": "6", "order": "oldest"}, []),
        ({"time": "6"}, [4, 3, 2, 1, 0]),
    ],
)
def test_a_page_begins_where_the_address_says(asked, expected):
    log = filled([[(0, time, b"x") for time in range(1, 6)]])
    found = rows.read(log.log.topic("t"), rows.wanted_of(asked, Mask()))
    assert [each.offset for each in found.rows] == expected


@pytest.mark.parametrize("backward", [True, False])
def test_rows_that_are_not_committed_are_not_shown(backward):
    made = ReplicatedTopic()
    made.append({0: [b"committed"]}, on=ALL)
    made.append({0: [b"on one node"]}, on=("0",))
    _, handle = made.open()
    assert (handle.partitions[0].high_watermark, handle.partitions[0].log_end) == (1, 2)
    assert [each.columns["value"] for each in rows.read(handle, rows.Wanted(backward=backward)).rows] == ["committed"]
    with pytest.raises(InvalidInput, match="has no row 1: it has those from 0 to 0"):
        rows.read_one(handle, 0, 1)


def masked(*names):
    return mask_of(names, "t")


FILTERS = ("key", "key_has", "value_has", "header", "field")


@pytest.fixture
def log():
    log = PlainLog()
    log.create("t", 1)
    secret = SECRET.encode()
    header = [[{"key": "h", "value": secret}]] * 2
    log.append_rows("t", Rows(record([secret, b"v"], [secret, b"k"], None, header), None, None))
    return log


@pytest.mark.parametrize(
    ("mask", "refused"),
    [
        ("key", {"key", "key_has"}),
        ("value", {"value_has", "field"}),
        ("header:h", {"header"}),
        ("headers", {"header"}),
        ("Value", {"value_has", "field"}),
    ],
)
def test_what_is_masked_is_not_filtered_by(mask, refused):
    for name in FILTERS:
        if name in refused:
            with pytest.raises(InvalidInput, match=mask.lower()):
                rows.wanted_of({name: "x"}, masked(mask))
        else:
            rows.wanted_of({name: "x"}, masked(mask))


def test_a_masked_column_of_a_typed_topic_is_not_found_by_text():
    handle = of_columns({"id": pa.int64(), "name": pa.string()}, [{"id": 1, "name": SECRET}])
    wanted = rows.wanted_of({"value_has": SECRET}, masked("name"))
    assert len(rows.read(handle, wanted).rows) == 1
    for mask in (masked("name"), masked("Name"), masked("t:name")):
        assert rows.read(handle, wanted, mask).rows == []
        assert SECRET.encode() not in rows.download(handle, rows.wanted_of({}, mask), "jsonl", mask)
        with pytest.raises(InvalidInput):
            rows.wanted_of({"field": f"name={SECRET}"}, mask)


@given(st.binary() | st.sampled_from([None, b"[" * 100_000, b'{"a":' * 100_000, b"1e999", b'"\\ud800"', b"\xff"]))
def test_a_value_that_is_not_json_has_no_fields(value):
    assert not filters._has_field(filters.json_of(value), "a.b")


def test_a_name_that_is_no_place_in_a_list_finds_no_field():
    for name in ("²", "٣", "9" * 5000, "1", "-1", ""):
        assert not filters._has_field({"a": [7]}, f"a.{name}")
    assert filters._has_field({"a": [7]}, "a.0=7")


SSN = pa.field("ssn", pa.string(), nullable=False)
PERSON = pa.struct([("name", pa.string()), ("ages", pa.list_(pa.field("element", pa.int64())))])
TYPED = {
    "id": pa.int64(),
    "text": pa.string(),
    "at": pa.timestamp("us", "UTC"),
    "person": PERSON,
    "tags": pa.map_(pa.string(), pa.string()),
}
OBJECTS = [
    {"id": 7, "text": "abc", "at": 0, "person": {"name": "Ada", "ages": [36, 1815]}, "tags": [("k", "v")]},
    {"id": 70, "text": None, "at": 10**6, "person": None, "tags": None},
    {"id": None, "text": 'b"c', "at": None, "person": {"name": None, "ages": [7]}, "tags": []},
]


@pytest.fixture
def typed():
    return of_columns(TYPED, OBJECTS)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"value_has": "b"}, [0, 2]),
        ({"value_has": "Ad"}, [0]),
        ({"value_has": "181"}, [0]),
        ({"value_has": "1970-01-01T00:00:01"}, [1]),
        ({"value_has": "7"}, [0, 1, 2]),
        ({"field": "id=7"}, [0]),
        ({"field": "id"}, [0, 1]),
        ({"field": "person.name=Ada"}, [0]),
        ({"field": "person.name"}, [0]),
        ({"field": "person.ages.1=1815"}, [0]),
        ({"field": "person.ages.0"}, [0, 2]),
        ({"field": "person.ages.9"}, []),
        ({"field": "tags.k=v"}, [0]),
        ({"field": "tags.other"}, []),
        ({"field": "nothing.a"}, []),
        ({"field": "id=7", "value_has": "x"}, []),
        ({"key": "x"}, []),
    ],
)
def test_a_typed_topic_is_searched_by_its_texts_and_its_fields(typed, asked, expected):
    found = rows.read(typed, rows.wanted_of(asked | {"order": "oldest"}, Mask()))
    assert [each.offset for each in found.rows] == expected


def test_a_search_in_a_typed_topic_makes_no_object_of_each_row(monkeypatch, typed):
    made = []
    objects = typed_json.objects
    monkeypatch.setattr(typed_json, "objects", lambda batch: made.append(batch.num_rows) or objects(batch))
    rows.read(typed, rows.wanted_of({"field": "text=none of them"}, Mask()))
    assert made == []


def test_fields_within_columns_and_within_json_are_masked(typed, log):
    found = rows.read(typed, rows.Wanted(backward=False), masked("person.ages", "tags.k")).rows[0]
    assert msgspec.json.decode(found.columns["person"]) == {"name": "Ada", "ages": "masked"}
    assert msgspec.json.decode(found.columns["tags"]) == {"k": "masked"}
    with pytest.raises(InvalidInput):
        rows.wanted_of({"field": "person.ages.0=36"}, masked("person.ages"))
    rows.wanted_of({"field": "person.name=Ada"}, masked("person.ages"))
    handle = log.log.topic("t")
    log.append("t", {0: [b'{"user": {"ssn": "s3cret", "name": "x"}}', b"s3cret, no JSON"]})
    handle.refresh()
    for mask in (masked("value.user.ssn"), masked("VALUE.user")):
        assert [SECRET in str(each.columns["value"]) for each in rows.read(handle, rows.Wanted(), mask).rows[:2]] == [
            False
        ] * 2
        for form in ("jsonl", "parquet"):
            assert b"no JSON" not in rows.download(handle, rows.wanted_of({}, mask), form, mask)
        with pytest.raises(InvalidInput):
            rows.wanted_of({"value_has": "s3"}, mask)


NESTED = {
    "people": pa.list_(pa.field("element", pa.struct([pa.field("name", pa.string()), SSN]), nullable=False)),
    "by_id": pa.map_(pa.string(), pa.struct([pa.field("name", pa.string()), SSN])),
    "pairs": pa.list_(pa.field("element", pa.map_(pa.string(), pa.string()))),
    "who": pa.struct([("name", pa.string()), pa.field("more", pa.struct([SSN]))]),
    "codes": pa.map_(pa.binary(), pa.string()),
}
ADA, BOB = ({"name": name, "ssn": SECRET} for name in ("Ada", "Bob"))
NESTED_ROWS = [
    {
        "people": [ADA, BOB],
        "by_id": [("a", ADA), ("b", None)],
        "pairs": [[("ssn", SECRET), ("c", "d")], None],
        "who": {"name": "Ada", "more": {"ssn": SECRET}},
        "codes": [(b"x", SECRET)],
    },
    dict.fromkeys(NESTED),
    {"people": [], "by_id": [], "pairs": [[]], "who": {"name": None, "more": None}, "codes": None},
]
MASKED_ROWS = [
    {
        "people": [ADA | {"ssn": None}, BOB | {"ssn": None}],
        "by_id": [("a", ADA | {"ssn": None}), ("b", None)],
        "pairs": [[("ssn", None), ("c", "d")], None],
        "who": {"name": "Ada", "more": {"ssn": None}},
        "codes": None,
    },
    *NESTED_ROWS[1:],
]


def test_a_download_lacks_exactly_the_fields_that_are_masked_also_in_lists_and_maps():
    names = ("people.ssn", "by_id.a.ssn", "pairs.ssn", "who.more.ssn", "codes.eA==")
    handle = of_columns(NESTED, NESTED_ROWS)
    for mask, expected in ((Mask(), NESTED_ROWS), (masked(*names), MASKED_ROWS)):
        file = rows.download(handle, rows.Wanted(backward=False), "parquet", mask)
        assert parquet.read_table(io.BytesIO(file)).select(list(NESTED)).to_pylist() == expected
        lines = rows.download(handle, rows.Wanted(backward=False), "jsonl", mask)
        assert (SECRET.encode() in lines) == (expected is NESTED_ROWS)
        assert b"Bob" in lines


def test_a_search_ends_after_a_time(monkeypatch):
    monkeypatch.setattr(rows, "SCAN_SECONDS", 0.0)
    log = PlainLog()
    log.create("t")
    log.append("t", {0: [b"x"] * 100})
    found = rows.read(log.log.topic("t"), rows.Wanted(filters=filters.Filters(value_has="y")))
    assert (found.scanned, found.at) == (0, {0: 100})


def test_a_download_has_the_rows_of_the_page_as_json_lines_and_as_parquet():
    log = PlainLog()
    handle = log.create("t", 2)
    headers = [[{"key": "h", "value": b"1"}], None, [{"key": "h", "value": b"2"}, {"key": "i", "value": None}]]
    for partition in (0, 1):
        found = record([b"a", b"b", None], [b"k", None, b"l"], [1, 2, 3], headers)
        log.append_rows("t", Rows(found, None, pa.array([partition] * 3, pa.int32())))
        log.append("t", {partition: [b"later"]})
    handle.refresh()
    for asked in ({}, {"order": "oldest"}, {"value_has": "b"}, {"partition": "1"}, {"key": "nobody"}):
        wanted = rows.wanted_of(asked, Mask())
        page = [
            (row.partition, row.offset, row.columns["key"], row.columns["value"])
            for row in rows.read(handle, wanted).rows
        ]
        lines = map(msgspec.json.decode, rows.download(handle, wanted, "jsonl").splitlines())
        assert [(each["partition"], each["offset"], each["key"], each["value"]) for each in lines] == page
        table = parquet.read_table(io.BytesIO(rows.download(handle, wanted, "parquet")))
        assert table.column_names == ["partition", "offset", "key", "value", "timestamp", "headers"]
        found = table.select(["partition", "offset", "key", "value"]).to_pylist()
        texts = [tuple(each.decode() if isinstance(each, bytes) else each for each in row.values()) for row in found]
        assert texts == page


def test_a_download_ends_after_the_row_that_reaches_its_size(monkeypatch):
    monkeypatch.setattr(rows, "DOWNLOAD_BYTES_MAX", 1000)
    log = PlainLog()
    handle = log.create("t")
    log.append("t", {0: [b"x" * 300] * 10})
    handle.refresh()
    assert len(rows.download(handle, rows.Wanted(limit=rows.DOWNLOAD_ROWS), "jsonl").splitlines()) == 4


@pytest.mark.parametrize("backward", [True, False])
def test_a_filter_that_finds_nothing_reads_a_bounded_number_of_rows_of_all_partitions_together(monkeypatch, backward):
    monkeypatch.setattr(rows, "SCANNED_MAX", 60)
    log = PlainLog()
    log.create("t", 4)
    log.append("t", {number: [b"x"] * 100 for number in range(4)})
    found = rows.read(log.log.topic("t"), rows.Wanted(backward=backward, filters=filters.Filters(value_has="y")))
    assert found.scanned == 60
    assert found.at == dict.fromkeys(range(4), 85 if backward else 15), "each partition has its share"
