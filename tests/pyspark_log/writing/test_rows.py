import datetime as dt

import pyarrow as pa
import pytest

from pyspark_log.writing.rows import check_columns, record_bytes, rows_of
from pyspark_log_storage.columns import schema
from pyspark_log_storage.columns.column_ddl import parse
from pyspark_log_storage.errors import InvalidRecord

NOW_US = 1_700_000_000_000_000
HEADERS_TYPE = "array<struct<key:string,value:binary>>"


def made(*, by_topic_column=False, **columns):
    batch = pa.RecordBatch.from_pydict(columns)
    return rows_of(batch, now_us=NOW_US, by_topic_column=by_topic_column)


def test_a_frame_needs_a_value_and_a_topic_and_no_more():
    check_columns({"value": "string"}, "t")
    check_columns({"value": "binary", "topic": "string"}, None)
    check_columns({"value": "string collate UTF8_LCASE", "topic": "int", "delay": "array<int>"}, "t")


def test_a_frame_without_value_or_topic_is_refused():
    with pytest.raises(InvalidRecord, match="no topic is given: set the option 'topic'"):
        check_columns({"value": "string"}, None)
    with pytest.raises(
        InvalidRecord,
        match=r"no column 'value' \(it has id, key\); give .* this name in lower case.* or set schema=columns",
    ):
        check_columns({"id": "bigint", "key": "string"}, "t")


@pytest.mark.parametrize(
    ("column", "kind", "expected"),
    [
        ("value", "int", "binary or string"),
        ("key", "bigint", "binary or string"),
        ("headers", "map<string,binary>", HEADERS_TYPE),
        ("topic", "binary", "string"),
        ("partition", "bigint", "int"),
        ("timestamp", "timestamp_ntz", "timestamp"),
    ],
)
def test_a_column_of_a_wrong_type_is_refused(column, kind, expected):
    with pytest.raises(InvalidRecord) as caught:
        check_columns({"value": "string", "topic": "string"} | {column: kind}, None)
    assert str(caught.value) == f"column '{column}' has type {kind}, expected {expected}; cast it before the write"


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_texts_are_stored_as_bytes_whatever_their_arrow_type(kind):
    column = pa.array(["ä", None, ""]).cast(kind)
    assert made(value=column).record.schema == schema.RECORD
    assert made(value=column).record.column("value").to_pylist() == ["ä".encode(), None, b""]


def test_rows_without_a_time_get_the_time_of_the_write():
    now = dt.datetime.fromtimestamp(NOW_US / 1e6, dt.timezone.utc)
    given = dt.datetime(2001, 2, 3, tzinfo=dt.timezone.utc)
    assert made(value=[b"a"]).record.column("timestamp").to_pylist() == [now]
    column = pa.array([given, None], pa.timestamp("us", "UTC"))
    assert made(value=[b"a", b"b"], timestamp=column).record.column("timestamp").to_pylist() == [given, now]


def headers(*entries, large=False):
    text, data = (pa.large_string(), pa.large_binary()) if large else (pa.string(), pa.binary())
    kind = pa.list_(pa.field("element", pa.struct([pa.field("key", text), pa.field("value", data)])))
    return pa.array(entries, kind)


@pytest.mark.parametrize("large", [False, True])
def test_headers_are_kept(large):
    entries = ([{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, [])
    stored = made(value=[b"x"] * 3, headers=headers(*entries, large=large)).record
    assert stored.schema == schema.RECORD_WITH_HEADERS
    assert stored.column("headers").to_pylist() == list(entries)


def test_a_header_whose_key_is_null_is_refused_as_send_refuses_it():
    column = headers([{"key": "a", "value": b"1"}], [{"key": None, "value": b"2"}], None)
    with pytest.raises(InvalidRecord, match="a row has a header whose key is null"):
        made(value=[b"x"] * 3, headers=column)


def test_a_header_that_is_null_counts_unless_its_array_is_null():
    entries = pa.array([None, {"key": "a", "value": b"1"}, None], schema.HEADERS.value_type)
    places = pa.array([0, 1, 2, 3], pa.int32())
    column = pa.ListArray.from_arrays(places, entries, type=schema.HEADERS, mask=pa.array([True, False, False]))
    assert made(value=[b"x"] * 2, headers=column[:2]).record.column("headers")[0].as_py() is None
    with pytest.raises(InvalidRecord, match="a row has a header that is null"):
        made(value=[b"x"] * 3, headers=column)


def test_a_null_topic_is_refused():
    with pytest.raises(InvalidRecord, match="a row has a null topic"):
        made(value=[b"x", b"y"], topic=["t", None], by_topic_column=True)


def test_the_bytes_of_a_row_are_those_of_key_value_and_headers():
    entries = ([{"key": "ab", "value": b"123"}, {"key": "c", "value": None}], None, [], [{"key": "", "value": b"9"}])
    stored = made(key=["k", None, "kk", None], value=[b"v", b"vv", None, None], headers=headers(*entries)).record
    assert record_bytes(stored).tolist() == [2 + 6, 2, 2, 1]
    assert record_bytes(stored.slice(1)).tolist() == [2, 2, 1]
    assert record_bytes(made(value=[b"abc", None]).record).tolist() == [3, 0]


def test_the_bytes_of_a_row_of_columns_are_those_of_its_own_lists_and_maps():
    columns = parse("n int, l array<string>, m map<string, bigint>")
    lists, maps = [["ab", "c"], None, [], ["defg"]], [[("k", 1)], [("kk", 2), ("k", 3)], None, []]
    times = pa.array([0] * 4, schema.TIMESTAMP)
    arrays = [pa.array(each, field.type) for each, field in zip(([1] * 4, lists, maps), columns, strict=True)]
    stored = pa.RecordBatch.from_arrays([*arrays, times], schema=schema.typed(columns))
    assert record_bytes(stored).tolist() == [4 + 3 + 9, 4 + 10 + 9, 4, 4 + 4]
    assert record_bytes(stored.slice(1)).tolist() == [4 + 10 + 9, 4, 4 + 4]
