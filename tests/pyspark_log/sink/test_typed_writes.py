"""Writes to typed topics: which frames and rows they take."""

import datetime as dt
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, IntegerType, NullType, StringType, StructField, StructType

from pyspark_log import Producer
from pyspark_log.writing import typed_plan
from pyspark_log.writing.partitioner import murmur2
from pyspark_log.writing.typed_rows import _key_bytes
from pyspark_log_coordinator.maintenance import topic_description
from pyspark_log_storage.columns import schema
from pyspark_log_storage.columns.column_ddl import parse
from pyspark_log_storage.errors import InvalidInput, InvalidOption, InvalidRecord, NoCluster, UnknownTopic
from tests.support.direct import read, source
from tests.support.plain_log import PlainLog
from tests.support.pyspark_log.typed_frames import struct, write
from tests.support.storage import random_columns

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.timezone.utc)


@pytest.fixture
def path(tmp_path):
    PlainLog(tmp_path / "log")
    return tmp_path / "log"


@pytest.fixture
def typed(path):
    """A topic with the columns id, which is not null, and name."""
    from pyspark_log.opening import open_log
    from pyspark_log_storage.columns.column_ddl import parse

    open_log(str(path)).create_topic("t", 2, columns=parse("id INT NOT NULL, name STRING"))
    return path


def rows(path, *names, topic="t", **options):
    found = sorted(read(path, subscribe=topic, **options), key=lambda row: (row["partition"], row["offset"]))
    return [tuple(row[name] for name in names) for row in found]


def test_the_first_write_creates_a_topic_with_the_frames_columns(path):
    ddl = "id BIGINT NOT NULL, at TIMESTAMP, s STRUCT<x: INT NOT NULL>"
    write(path, ddl, [{"id": 1, "at": NOON, "s": {"x": 5}}], schema="columns", num__partitions=1)
    schema = source(path, subscribe="t").schema()
    assert [f"{each.name}: {each.dataType.simpleString()}" for each in schema] == [
        "topic: string",
        "partition: int",
        "offset: bigint",
        "timestamp: timestamp",
        "id: bigint",
        "at: timestamp",
        "s: struct<x:int>",
    ]
    assert all(each.nullable for each in schema)
    assert rows(path, "topic", "partition", "offset", "id", "at", "s") == [("t", 0, 0, 1, NOON, {"x": 5})]


def test_columns_are_taken_by_name_and_missing_ones_are_null(typed):
    write(typed, "NAME STRING, id INT", [{"NAME": "a", "id": 1}])
    write(typed, "id SMALLINT", [{"id": 2}])
    assert sorted(rows(typed, "id", "name")) == [(1, "a"), (2, None)]


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


def test_a_map_whose_keys_are_structs_is_written_again_with_merge_schema(path):
    for options in ({"schema": "columns", "num__partitions": 1}, {"mergeSchema": "true"}):
        row = {"m": [({"k": 1}, 2)]}
        write(path, "m MAP<STRUCT<k: INT NOT NULL>, INT>", [row], **options)
    assert rows(path, "m") == [([({"k": 1}, 2)],)] * 2


def test_partition_and_timestamp_are_those_of_the_row(typed):
    write(typed, "id INT; +partition; +timestamp; +topic", [{"id": 1, "partition": 1, "timestamp": NOON, "topic": "x"}])
    assert rows(typed, "id", "partition", "timestamp") == [(1, 1, NOON)]


@pytest.mark.parametrize(
    ("ddl", "error"),
    [
        (
            "id INT, extra INT",
            r"'t': there is no column 'extra' \(the columns are id INT NOT NULL, name STRING\)",
        ),
        ("name STRING", "topic 't': column 'id' is not null, and the frame lacks it"),
        ("id STRING", "topic 't': column 'id' is int in the topic and string in the frame; cast it"),
        ("id DOUBLE", "topic 't': column 'id' is int in the topic and double in the frame"),
        ("value STRING", "topic 't': column 'id' is not null, and the frame lacks it"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_before_a_row_is_read(typed, ddl, error):
    with pytest.raises(InvalidRecord, match=error):
        write(typed, ddl)


@pytest.mark.parametrize(
    "kind",
    ["struct<x: int{}>", "array<struct<x: int{}>>", "map<string, struct<x: int{}>>", "struct<x: struct<y: int{}>>"],
)
def test_nested_values_that_may_be_null_do_not_fit_a_topic_without_such_nulls(kind):
    topic, frame = (parse(f"s {kind.format(nulls)}") for nulls in (" not null", ""))
    typed_plan.plan("t", [schema.encode(schema.typed(topic))], topic, "")
    with pytest.raises(InvalidRecord, match=r"column 's\.\S+' is not null in the topic, and may be null in the frame"):
        typed_plan.plan("t", [schema.encode(schema.typed(topic))], frame, "")


@pytest.mark.parametrize(
    ("field", "error"),
    [
        (StructField("offset", IntegerType()), "column 'offset' cannot be stored"),
        (StructField("partition", StringType()), "column 'partition' has type string, expected int"),
        (StructField("name", NullType()), "column 'name' has type void, which a topic cannot store"),
        (StructField("name", StringType("UTF8_LCASE")), "column 'name' has a collation"),
    ],
)
def test_a_column_that_cannot_be_stored_is_refused_by_name(typed, field, error):
    with pytest.raises(InvalidRecord, match=f"topic 't': {error}"):
        write(typed, StructType([StructField("id", IntegerType()), field]))


def test_merge_schema_adds_columns_and_widens_numbers(typed):
    write(typed, "id INT, name STRING", [{"id": 1, "name": "a"}])
    write(typed, "id BIGINT, at DATE", [{"id": 2**40, "at": NOON.date()}], mergeSchema="true")
    write(typed, "id INT, name STRING", [{"id": 3, "name": "c"}])
    assert sorted(rows(typed, "id", "name", "at")) == [(1, "a", None), (3, "c", None), (2**40, None, NOON.date())]
    assert source(typed, subscribe="t").schema()["id"].nullable is False


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


def test_merge_schema_that_contradicts_is_refused_by_name(typed):
    with pytest.raises(InvalidRecord, match="topic 't': column 'name' is string and cannot become int"):
        write(typed, "id INT, name INT", mergeSchema="true")


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


def test_a_dead_letter_has_no_key_if_that_is_too_large_for_the_topics_column(path):
    write(path, "id INT", [{"id": 5}], schema="columns", key__column="id")
    write(path, "id BIGINT", [{"id": 2**32 + 5}, {"id": 6}], dead__letter__topic="dead")
    assert sorted(rows(path, "id")) == [(5,), (6,)]
    assert rows(path, "key", "value", topic="dead") == [(None, b'{"id":4294967301}')]


def test_text_that_is_not_utf8_is_refused_where_readers_would_take_it_for_damage(typed):
    from pyspark_log.writing.rows import TypedSchema
    from pyspark_log.writing.typed_plan import TypedPlan
    from pyspark_log.writing.typed_rows import typed_rows
    from pyspark_log_storage.columns import schema
    from pyspark_log_storage.columns.column_ddl import parse

    stored = schema.encode(schema.typed(parse("a ARRAY<STRING>, b INT")))
    plan = TypedPlan(TypedSchema(0, stored), ("a", "b"), ())
    wrong = pa.array([[b"ok"], [b"\xff", b"x"], None], pa.list_(pa.binary())).view(pa.list_(pa.string()))
    batch = pa.RecordBatch.from_arrays([wrong, pa.array([1, 2, 3], pa.int32())], names=["a", "b"])
    with pytest.raises(InvalidRecord, match="topic 't': column 'a' has text that is not UTF-8"):
        list(typed_rows(batch, plan, "t", now_us=0))
    letters, good = typed_rows(batch, plan, "t", now_us=0, keeps_refused=True)
    assert good.record.column("b").to_pylist() == [1, 3]
    assert json.loads(letters.record.column("value")[0].as_py()) == {"a": ["�", "x"], "b": 2}


def test_empty_lists_of_lists_that_have_no_offsets_get_one_before_they_are_converted(monkeypatch):
    from pyspark_log.writing import typed_rows
    from pyspark_log.writing.rows import TypedSchema
    from pyspark_log.writing.typed_plan import TypedPlan
    from pyspark_log_storage.columns import schema
    from pyspark_log_storage.columns.column_ddl import parse

    def converted(column, kind):
        assert random_columns.has_offsets(column)
        return convert(column, kind)

    convert = typed_rows.converted
    monkeypatch.setattr(typed_rows, "converted", converted)
    typed = schema.typed(parse("a ARRAY<ARRAY<BIGINT>>"))
    lists = random_columns.lists_without_offsets(parse("a ARRAY<INT>").field("a").type, 3)
    plan = TypedPlan(TypedSchema(0, schema.encode(typed)), ("a",), ())
    (rows,) = typed_rows.typed_rows(pa.record_batch({"a": lists}), plan, "t", now_us=0)
    assert random_columns.has_offsets(rows.record.column("a"))
    assert rows.record.column("a").to_pylist() == [[], [], []]


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


TEXTS = st.none() | st.text("ab\0", max_size=3)


@given(st.lists(st.tuples(TEXTS.map(lambda each: None if each is None else each.encode()), TEXTS), max_size=60))
def test_no_two_keys_of_several_columns_have_the_same_bytes(keys):
    columns = [pa.array([key[at] for key in keys], kind) for at, kind in enumerate((pa.binary(), pa.string()))]
    made = _key_bytes(columns).to_pylist()
    assert [each is None for each in made] == [None in key for key in keys]
    assert len({each for each in made if each is not None}) == len({key for key in keys if None not in key})


def test_a_row_that_lacks_one_of_several_keys_of_a_compacted_topic_becomes_a_dead_letter(path):
    write(path, "a STRING, n INT", [{"a": "b", "n": 1}], schema="columns", key__column="a,n")
    PlainLog(path).log.topic("t").alter_config({"cleanup.policy": "compact"})
    batch = [{"a": "c", "n": 2}, {"a": "d", "n": None}, {"a": None, "n": 3}]
    write(path, "a STRING, n INT", batch, dead__letter__topic="dead")
    assert sorted(rows(path, "a", "n")) == [("b", 1), ("c", 2)]
    letters = rows(path, "key", "value", topic="dead")
    assert sorted((key, json.loads(value)["n"] or 0) for key, value in letters) == [(None, 0), (None, 3)]


@pytest.mark.parametrize(
    ("setting", "why"), [("k,", r"key\.column is ''"), ("k,K", "names 'k' twice"), ("k,x", "double")]
)
def test_each_of_several_key_columns_is_checked(typed, setting, why):
    with pytest.raises(InvalidOption, match=why):
        write(typed, "k STRING, x DOUBLE", topic="n", schema="columns", key__column=setting)
    assert "n" not in PlainLog(typed).log.topics()


def partitions_of_keys(path):
    """The partitions in which each key has rows."""
    found = {}
    for partition, key in rows(path, "partition", "k"):
        found.setdefault(key, set()).add(partition)
    return found


def test_writes_that_name_no_key_column_use_that_of_the_first(path):
    batch = [{"k": f"key {number}"} for number in range(20)]
    write(path, "k STRING", batch, schema="columns", num__partitions=16, key__column="K")
    write(path, "k STRING", batch)
    with Producer(path) as producer:
        producer.send_batch("t", pa.RecordBatch.from_pylist(batch)).result()
    assert all(len(found) == 1 for found in partitions_of_keys(path).values())
    assert sum(len(found) for found in partitions_of_keys(path).values()) == 20
    assert len(rows(path, "k")) == 60


def test_a_topic_without_a_key_column_keeps_the_first_one_that_a_write_names(path):
    write(path, "k STRING, v STRING", [{"k": "a", "v": "b"}], schema="columns", num__partitions=16)
    write(path, "k STRING, v STRING, w STRING", [{"k": "a"}], mergeSchema="true", key__column="w")
    with pytest.raises(InvalidOption, match=r"topic 't' has key.column=w, .* two partitions with key.column=k"):
        write(path, "k STRING, x STRING", [{"k": "a"}], mergeSchema="true", key__column="k")
    assert PlainLog(path).log.topic("t").journal.state.config.key_column == "w"
    assert len(PlainLog(path).log.topic("t").schemas) == 2  # the refused write added no column
    assert len(rows(path, "k")) == 2


def test_a_key_column_does_not_become_wider(path):
    write(path, "k INT, v INT", [{"k": 1, "v": 1}], schema="columns", key__column="k")
    write(path, "k INT, v BIGINT", [{"k": 1, "v": 2**40}], mergeSchema="true")
    with pytest.raises(InvalidRecord, match=r"topic 't': column 'k' is the topic's key.column.*cast it to int"):
        write(path, "k BIGINT, v BIGINT", [{"k": 1, "v": 1}], mergeSchema="true")


def test_a_key_column_that_does_not_exist_or_has_no_bytes_is_refused(typed):
    with pytest.raises(InvalidOption, match=r"topic 't': key.column is 'nope', and the columns are id INT"):
        write(typed, "id INT", key__column="nope")
    with pytest.raises(InvalidOption, match=r"topic 'n': key.column 'x' has type double; choose a column of text"):
        write(typed, "x DOUBLE", topic="n", schema="columns", key__column="x")
    assert "n" not in PlainLog(typed).log.topics()


def test_rows_that_are_larger_than_the_topic_allows_are_refused(typed):
    with pytest.raises(InvalidRecord, match=r"a row of 1004 bytes is larger than max.message.bytes"):
        write(typed, "id INT, name STRING", [{"id": 1, "name": "x" * 1000}], max__message__bytes=1000)
    write(typed, "id INT, name STRING", [{"id": 1, "name": "x" * 996}] * 10, max__message__bytes=1000)


def test_records_are_refused_by_a_typed_topic_and_columns_by_a_topic_of_records(typed):
    PlainLog(typed).create("r")
    with pytest.raises(InvalidRecord, match="the frame has no column 'value'"):
        write(typed, "id INT", topic="r")
    for option in ({"schema": "columns"}, {"mergeSchema": "true"}, {"key.column": "value"}):
        with pytest.raises(InvalidOption, match="is for typed topics, and topic 'r' holds records"):
            write(typed, "value STRING", topic="r", **option)
    frame = StructType([StructField("value", StringType()), StructField("topic", StringType())])
    with pytest.raises(InvalidRecord, match="topic 't' is typed: it has columns of its own"):
        _write_by_topic_column(typed, frame)
    with pytest.raises(InvalidOption, match="set the option topic, or remove schema"):
        source(typed, schema="columns").writer(frame, False)
    with pytest.raises(InvalidOption, match=r"dead.letter.topic is 't', a typed topic"):
        write(typed, "value STRING", topic="r", **{"dead.letter.topic": "t"})


def _write_by_topic_column(path, frame):
    from pyspark.sql.pandas.types import to_arrow_schema

    from tests.support.pyspark_log.typed_frames import _task

    writer = source(path).writer(frame, False)
    with _task():
        writer.write(iter([pa.RecordBatch.from_pylist([{"value": "v", "topic": "t"}], to_arrow_schema(frame))]))


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
    schema = StructType([StructField("name", StringType()), StructField("topic", StringType())])
    assert read(typed, schema, subscribe="t") == [{"name": "a", "topic": "t"}]
    assert [each.schema.names for each in decoded] == [["name", "timestamp"]]


@pytest.mark.parametrize(
    ("field", "error"),
    [
        (
            StructField("nope", StringType()),
            "topic 't': unknown column 'nope'; the columns are topic, partition",
        ),
        (StructField("name", IntegerType()), "topic 't': column 'name' has type string, not int; if it has"),
        (StructField("name", StringType(), nullable=False), "column 'name' is nullable"),
        (StructField("topic", IntegerType()), "column 'topic' is string and nullable, not int"),
    ],
)
def test_a_schema_that_a_typed_topic_does_not_have_is_refused(typed, field, error):
    with pytest.raises(InvalidInput, match=error):
        source(typed, subscribe="t").reader(StructType([field]))


@pytest.mark.parametrize("field", [StructField("key", BinaryType()), StructField("timestampType", IntegerType())])
def test_a_schema_of_records_is_refused_by_a_typed_topic_with_columns_of_these_names(path, field):
    write(path, "key STRING, timestampType STRING", [{"key": "k", "timestampType": "7"}], schema="columns")
    schema = StructType([field])
    error = f"topic 't': column '{field.name}' has type string, not {field.dataType.simpleString()}"
    with pytest.raises(InvalidInput, match=error):
        source(path, subscribe="t").reader(schema).partitions()
    streaming = source(path, subscribe="t", startingOffsets="earliest").streamReader(schema)
    start, limit = streaming.initialOffset(), streaming.getDefaultReadLimit()
    with pytest.raises(InvalidInput, match=error):
        streaming.partitions(start, streaming.latestOffset(start, limit))


def test_topics_of_two_kinds_are_not_read_together(typed):
    from pyspark_log.opening import open_log
    from pyspark_log_storage.columns.column_ddl import parse

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
