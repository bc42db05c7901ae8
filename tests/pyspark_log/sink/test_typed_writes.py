"""Writes to typed topics: which frames and rows they take."""

import datetime as dt
import json

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, NullType, StringType, StructField, StructType

from pyspark_log import Producer
from pyspark_log.opening import open_log
from pyspark_log.writing.partitioner import murmur2
from pyspark_log.writing.rows import TypedSchema
from pyspark_log.writing.typed_rows import TypedPlan, as_json, plan, typed_rows
from pyspark_log_coordinator.log import topic_description
from pyspark_log_storage.columns import schema
from pyspark_log_storage.columns.column_ddl import parse
from pyspark_log_storage.errors import InvalidInput, InvalidOption, InvalidRecord, NoCluster, UnknownTopic
from tests.support.direct import read, source
from tests.support.plain_log import PlainLog
from tests.support.pyspark_log.typed_frames import struct, write

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.timezone.utc)


@pytest.fixture
def path(tmp_path):
    PlainLog(tmp_path / "log")
    return tmp_path / "log"


@pytest.fixture
def typed(path):
    """A topic with the columns id, which is not null, and name."""
    open_log(str(path)).create_topic("t", 2, columns=parse("id INT NOT NULL, name STRING"))
    return path


def rows(path, *names, topic="t", **options):
    found = sorted(read(path, subscribe=topic, **options), key=lambda row: (row["partition"], row["offset"]))
    return [tuple(row[name] for name in names) for row in found]


def test_the_first_write_creates_a_topic_with_the_frames_columns(path):
    ddl = "id BIGINT NOT NULL, at TIMESTAMP, s STRUCT<x: INT NOT NULL>"
    write(path, ddl, [{"id": 1, "at": NOON, "s": {"x": 5}}], schema="columns", num__partitions=1)
    made = source(path, subscribe="t").schema()
    assert [f"{each.name}: {each.dataType.simpleString()}" for each in made] == [
        "topic: string",
        "partition: int",
        "offset: bigint",
        "timestamp: timestamp",
        "id: bigint",
        "at: timestamp",
        "s: struct<x:int>",
    ]
    assert all(each.nullable for each in made)
    assert rows(path, "topic", "partition", "offset", "id", "at", "s") == [("t", 0, 0, 1, NOON, {"x": 5})]


def test_fields_of_structs_are_taken_by_name_too_in_upper_or_lower_case(path):
    field, items = "s STRUCT<a: INT, b: STRING>", "l ARRAY<STRUCT<x: INT>>, m MAP<STRING, STRUCT<x: INT>>"
    row = {"s": {"a": 1, "b": "one"}, "l": [{"x": 1}], "m": {"k": {"x": 1}}}
    write(path, f"{field}, {items}", [row], schema="columns", num__partitions=1)
    other = {"S": {"B": "two", "A": 2}, "l": [{"X": 2}], "m": {"k": {"X": 2}}}
    write(path, "S STRUCT<B: STRING, A: INT>, l ARRAY<STRUCT<X: INT>>, m MAP<STRING, STRUCT<X: INT>>", [other])
    write(path, "s STRUCT<A: INT, c: INT>", [{"s": {"A": 3, "c": 4}}], mergeSchema="true")
    assert rows(path, "s") == [
        ({"a": 1, "b": "one", "c": None},),
        ({"a": 2, "b": "two", "c": None},),
        ({"a": 3, "b": None, "c": 4},),
    ]
    assert rows(path, "l", "m")[1] == ([{"x": 2}], [("k", {"x": 2})])


@pytest.mark.parametrize(
    "kind",
    ["struct<x: int{}>", "array<struct<x: int{}>>", "map<string, struct<x: int{}>>", "struct<x: struct<y: int{}>>"],
)
def test_a_null_inside_where_the_topic_has_none_is_found_in_the_rows_whatever_the_frame_says(kind):
    topic, frame = (parse(f"s {kind.format(nulls)}") for nulls in (" not null", ""))
    planned = plan("t", [schema.encode(schema.typed(topic))], frame, "")
    one, none = ({"struct<x: struct": {"x": {"y": y}}, "struct": {"x": y}, "array": [{"x": y}]} for y in (1, None))
    name = next((each for each in one if kind.startswith(each)), "map")
    values = ([("k", {"x": 1})], [("k", {"x": None})]) if name == "map" else (one[name], none[name])
    batch = pa.record_batch({"s": pa.array([values[0], None, *values], frame.field("s").type)[1:]})
    with pytest.raises(
        InvalidRecord, match="topic 't': column 's' has a null inside where the topic's column has none"
    ):
        typed_rows(batch, planned, "t", now_us=0)
    assert typed_rows(batch[:2], planned, "t", now_us=0).record.column("s").to_pylist() == [None, values[0]]


OFFSET, PARTITION = StructField("offset", IntegerType()), StructField("partition", StringType())
VOID, COLLATION = StructField("name", NullType()), StructField("name", StringType("UTF8_LCASE"))


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        ("id INT, extra INT", r"there is no column 'extra' \(the columns are id INT NOT NULL, name STRING\)"),
        ("name STRING", "column 'id' is not null, and the frame lacks it"),
        ("id STRING", "column 'id' is int in the topic and string in the frame; cast it before the write$"),
        ("id DOUBLE", "column 'id' is int in .* cast it before the write, or make .* wider by .* mergeSchema=true"),
        (StructType([StructField("s", StructType([]))]), "column 's' is a struct without fields"),
        (StructType([OFFSET]), "column 'offset' cannot be stored"),
        (StructType([PARTITION]), "column 'partition' has type string, expected int"),
        (StructType([VOID]), "column 'name' has type void, which a topic cannot store"),
        (StructType([COLLATION]), "column 'name' has a collation"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_before_a_row_is_read(typed, frame, error):
    with pytest.raises(InvalidRecord, match=f"topic 't': {error}"):
        write(typed, frame)


@pytest.mark.parametrize(
    ("topic", "frame", "error"),
    [
        ("m map<bigint, array<struct<a: double>>>", "M map<int, array<struct<A: float>>>", None),
        (
            "s struct<a: int>",
            "s struct<a: int, b: int>",
            "column 's' is struct<a: int> in the topic.*wider",
        ),
        (
            "a array<int>",
            "a array<bigint>",
            "column 'a' is array<int> in the topic.*wider",
        ),
        ("m map<int, int>", "m map<string, int>", "column 'm' is .* cast it before the write$"),
        ("a array<struct<b: int, c: int not null>>", "a array<struct<b: int>>", "column 'a.element.c' is not null"),
    ],
)
def test_what_is_inside_a_column_must_fit_too(topic, frame, error):
    stored = [schema.encode(schema.typed(parse(topic)))]
    if error is None:
        assert plan("t", stored, parse(frame), "").sources == ("M",)
        return
    with pytest.raises(InvalidRecord, match=f"topic 't': {error}"):
        plan("t", stored, parse(frame), "")


def test_the_nodes_know_a_new_column_before_a_task_writes_rows_with_it(typed):
    source(typed, topic="t", mergeSchema="true").writer(struct("id INT, extra INT"), False)
    handle = PlainLog(typed).log.topic("t")
    [file] = typed.glob("topics/t/*/description")
    assert topic_description.decode(file.read_bytes(), "it").topic.schemas == handle.state.schemas
    assert len(handle.state.schemas) == 2


@pytest.mark.parametrize(
    ("ddl", "options"),
    [
        ("name STRING, extra INT", {"mergeSchema": "true", "key__column": "name"}),
        ("id INT, extra DOUBLE", {"mergeSchema": "true", "key__column": "extra"}),
        ("id INT, extra INT", {"key__column": "id"}),
    ],
)
def test_a_write_that_is_refused_does_not_change_the_topic(typed, ddl, options):
    before = PlainLog(typed).log.topic("t").state
    with pytest.raises(InvalidInput):
        write(typed, ddl, **options)
    after = PlainLog(typed).log.topic("t").state
    assert (after.schemas, after.config) == (before.schemas, before.config)


@pytest.mark.parametrize("options", [{"mergeSchema": "true"}, {"key__column": "value"}])
def test_an_option_of_typed_topics_does_not_create_a_topic_of_records(path, options):
    with pytest.raises(InvalidOption, match="topic 'new' does not exist, and would hold records"):
        write(path, "value STRING", [{"value": "a"}], topic="new", **options)
    with pytest.raises(UnknownTopic):
        PlainLog(path).log.topic("new")


@pytest.mark.parametrize(
    ("ddl", "row", "error"),
    [
        ("id INT", {"id": None}, "topic 't': column 'id' is null, and the topic's column is not null"),
        ("id BIGINT", {"id": 2**31}, "topic 't': column 'id' has a number that is too large for the topic's column"),
    ],
)
def test_a_row_that_does_not_fit_fails_the_batch_and_writes_nothing(typed, ddl, row, error):
    with pytest.raises(InvalidRecord, match=error):
        write(typed, ddl, [{"id": 1}, row])
    assert rows(typed, "id") == []


def test_rows_that_do_not_fit_become_dead_letters(typed):
    batch = [{"id": 1, "name": "a"}, {"id": 2**40, "name": "b"}, {"id": None, "name": "c"}, {"id": 4, "name": "d"}]
    write(typed, "id BIGINT, name STRING", batch, dead__letter__topic="dead", key__column="name")
    assert sorted(rows(typed, "id", "name")) == [(1, "a"), (4, "d")]
    letters = sorted(rows(typed, "key", "value", "headers", topic="dead", includeHeaders="true"))
    assert [(key, json.loads(value)) for key, value, _ in letters] == [
        (b"b", {"id": 2**40, "name": "b"}),
        (b"c", {"id": None, "name": "c"}),
    ]
    said = [{each["key"]: each["value"] for each in headers} for *_, headers in letters]
    assert {each["__dlq.errors.topic"] for each in said} == {b"t"}
    assert b"too large for the topic's column" in said[0]["__dlq.errors.exception.message"]
    assert b"'id' is null" in said[1]["__dlq.errors.exception.message"]


def test_text_that_is_not_utf8_is_refused_where_readers_would_take_it_for_damage():
    stored = schema.encode(schema.typed(parse("a ARRAY<STRING>, b INT")))
    planned = TypedPlan(TypedSchema(0, stored), ("a", "b"), ())
    wrong = pa.array([[b"ok"], [b"\xff", b"x"], None], pa.list_(pa.binary())).view(pa.list_(pa.string()))
    batch = pa.RecordBatch.from_arrays([wrong, pa.array([1, 2, 3], pa.int32())], names=["a", "b"])
    with pytest.raises(InvalidRecord, match="topic 't': column 'a' has text that is not UTF-8"):
        typed_rows(batch, planned, "t", now_us=0)
    _, values = as_json(batch[1:2], planned)
    assert json.loads(values[0].as_py()) == {"a": ["�", "x"], "b": 2}


@pytest.mark.parametrize(
    ("ddl", "value", "key"),
    [
        ("k STRING", "ä", "ä".encode()),
        ("k BINARY", b"\x00\xff", b"\x00\xff"),
        ("k BIGINT", 21, (21).to_bytes(8, "big")),
        ("k INT", -2, (-2).to_bytes(4, "big", signed=True)),
        ("k SMALLINT", 3, (3).to_bytes(2, "big")),
    ],
)
def test_the_key_column_chooses_the_partition_as_kafkas_serializers_would(path, ddl, value, key):
    batch = [{"k": value}] * 3 + [{"k": None}]
    write(path, ddl, batch, schema="columns", num__partitions=64, key__column="k")
    expected = (int(murmur2(pa.array([key]))[0]) & 0x7FFF_FFFF) % 64
    assert sorted(rows(path, "partition", "k"), key=str) == sorted([(expected, value)] * 3 + [(0, None)], key=str)


def test_several_key_columns_choose_the_partition_by_their_lengths_and_bytes(path):
    batch = [{"a": "ä", "n": 7}, {"a": "ä", "n": 8}, {"a": None, "n": 7}, {"a": "b", "n": None}]
    write(path, "a STRING, n INT", batch, schema="columns", num__partitions=64, key__column="A, n")
    assert PlainLog(path).log.topic("t").config.key_column == "a,n"
    write(path, "a STRING, n INT", batch[:1], key__column="a,N")

    def partition(number):
        key = b"\0\0\0\2" + "ä".encode() + b"\0\0\0\4" + number.to_bytes(4, "big")
        return (int(murmur2(pa.array([key]))[0]) & 0x7FFF_FFFF) % 64

    found = sorted(rows(path, "partition", "a", "n"), key=str)
    wanted = [(partition(7), "ä", 7)] * 2 + [(partition(8), "ä", 8), (0, None, 7), (0, "b", None)]
    assert found == sorted(wanted, key=str)
    with pytest.raises(InvalidOption, match=r"topic 't' has key.column=a,n, .* two partitions with key.column=n,a"):
        write(path, "a STRING, n INT", batch[:1], key__column="n,a")
    with pytest.raises(InvalidRecord, match=r"topic 't': column 'n' is the topic's key.column.*cast it to int"):
        write(path, "a STRING, n BIGINT", batch[:1], mergeSchema="true")


def test_writes_that_name_no_key_column_use_that_of_the_first(path):
    batch = [{"k": f"key {number}"} for number in range(20)]
    write(path, "k STRING", batch, schema="columns", num__partitions=16, key__column="K")
    write(path, "k STRING", batch)
    with Producer(path) as producer:
        producer.send_batch("t", pa.RecordBatch.from_pylist(batch)).result()
    assert len(set(rows(path, "partition", "k"))) == 20, "a key has one partition"
    assert len(rows(path, "k")) == 60


def test_a_topic_without_a_key_column_keeps_the_first_one_that_a_write_names(path):
    write(path, "k STRING, v STRING", [{"k": "a", "v": "b"}], schema="columns", num__partitions=16)
    write(path, "k STRING, v STRING, w STRING", [{"k": "a"}], mergeSchema="true", key__column="w")
    with pytest.raises(InvalidOption, match=r"topic 't' has key.column=w, .* two partitions with key.column=k"):
        write(path, "k STRING, x STRING", [{"k": "a"}], mergeSchema="true", key__column="k")
    assert PlainLog(path).log.topic("t").journal.state.config.key_column == "w"
    assert len(PlainLog(path).log.topic("t").schemas) == 2  # the refused write added no column
    assert len(rows(path, "k")) == 2


def test_a_key_column_that_does_not_exist_or_has_no_bytes_is_refused(typed):
    with pytest.raises(InvalidOption, match=r"topic 't': key.column is 'nope', and the columns are id INT"):
        write(typed, "id INT", key__column="nope")
    with pytest.raises(InvalidOption, match=r"topic 'n': key.column 'x' has type double; choose a column of text"):
        write(typed, "x DOUBLE", topic="n", schema="columns", key__column="x")
    assert "n" not in PlainLog(typed).log.topics()


def test_records_are_refused_by_a_typed_topic_and_columns_by_a_topic_of_records(typed):
    PlainLog(typed).create("r")
    with pytest.raises(InvalidRecord, match="the frame has no column 'value'"):
        write(typed, "id INT", topic="r")
    for option in ({"schema": "columns"}, {"mergeSchema": "true"}, {"key.column": "value"}):
        with pytest.raises(InvalidOption, match="is for typed topics, and topic 'r' holds records"):
            write(typed, "value STRING", topic="r", **option)
    frame = StructType([StructField("value", StringType()), StructField("topic", StringType())])
    with pytest.raises(InvalidRecord, match="topic 't' is typed: it has columns of its own"):
        write(typed, frame, [{"value": "v", "topic": "t"}], topic=None)


def test_nothing_is_created_for_a_frame_that_is_refused(tmp_path):
    with pytest.raises(InvalidRecord, match="column 'offset' cannot be stored"):
        write(tmp_path / "none", StructType([StructField("offset", IntegerType())]), schema="columns")
    with pytest.raises(InvalidRecord, match="the frame has no column 'value'"):
        write(tmp_path / "none", "id INT")
    with pytest.raises((NoCluster, UnknownTopic)):
        write(tmp_path / "none", "id INT", schema="columns", **{"auto.create.topics.enable": "false"})
    assert not (tmp_path / "none").exists()


def test_a_projection_decodes_only_its_columns(typed, monkeypatch):
    from pyspark_log_storage.files import chunk

    decoded, decode = [], chunk.decode
    monkeypatch.setattr(chunk, "decode", lambda *given: decoded.append(decode(*given)) or decoded[-1])
    write(typed, "id INT, name STRING", [{"id": 1, "name": "a"}])
    some = StructType([StructField("name", StringType()), StructField("topic", StringType())])
    assert read(typed, some, subscribe="t") == [{"name": "a", "topic": "t"}]
    assert [each.schema.names for each in decoded] == [["name", "timestamp"]]


@pytest.mark.parametrize(
    ("field", "error"),
    [
        (StructField("nope", StringType()), "topic 't': unknown column 'nope'; the columns are topic, partition"),
        (StructField("name", IntegerType()), "topic 't': column 'name' has type string, not int; if it has"),
        (StructField("name", StringType(), nullable=False), "column 'name' is nullable"),
        (StructField("topic", IntegerType()), "column 'topic' has type string, not int"),
    ],
)
def test_a_schema_that_a_typed_topic_does_not_have_is_refused(typed, field, error):
    with pytest.raises(InvalidInput, match=error):
        source(typed, subscribe="t").reader(StructType([field]))


def test_topics_of_two_kinds_are_not_read_together(typed):
    log = open_log(str(typed))
    log.create_topic("same", 1, columns=parse("id INT NOT NULL, name STRING"))
    log.create_topic("other", 1, columns=parse("id BIGINT"))
    PlainLog(typed).create("r")
    assert "name" in source(typed, subscribe="t,same").schema().names
    with pytest.raises(InvalidInput, match="topics 't' and 'other' have different columns"):
        source(typed, subscribe="t,other").schema()
    with pytest.raises(InvalidInput, match="topic 't' is typed, and topic 'r' holds records"):
        source(typed, subscribe="t,r").schema()
    with pytest.raises(InvalidOption, match="rows of the typed topic 't' have no headers"):
        source(typed, subscribe="t", includeHeaders="true").schema()
    assert "value" in source(typed, subscribe="r").schema().names
