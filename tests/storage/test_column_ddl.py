"""Columns as people write them."""

import json
from random import Random

import pyarrow as pa
import pytest

from pyspark_log_storage.columns import column_types, schema
from pyspark_log_storage.columns.column_ddl import parse
from pyspark_log_storage.errors import InvalidRecord, NewerFormat
from tests.support.storage import random_columns


def test_ddl_names_all_types():
    found = parse(
        "a TINYINT, b smallint, c INT, d bigint NOT NULL, e FLOAT, f double, g DECIMAL(9, 3), h decimal, i STRING, "
        "j BINARY, k BOOLEAN, l DATE, m TIMESTAMP, n TIMESTAMP_NTZ, `o p` ARRAY<INT> COMMENT 'it''s', "
        "q MAP<STRING, ARRAY<STRUCT<x: INT NOT NULL, y STRING COMMENT 'why'>>>".replace("it''s", "its")
    )
    assert [str(each.type) for each in found][:14] == [
        "int8", "int16", "int32", "int64", "float", "double", "decimal128(9, 3)", "decimal128(10, 0)", "string",
        "binary", "bool", "date32[day]", "timestamp[us, tz=UTC]", "timestamp[us]",
    ]  # fmt: skip
    assert not found.field("d").nullable
    assert found.field("o p").type == pa.list_(pa.field("element", pa.int32()))
    assert str(found.field("q").type.item_type.value_type) == "struct<x: int32 not null, y: string>"


def test_columns_come_back_from_ddl_and_json():
    random = Random(3)
    for _ in range(100):
        columns = random_columns.columns(random)
        assert parse(json.dumps(column_types.to_json(columns))).equals(columns)
        shown = column_types.ddl(columns)
        assert column_types.ddl(parse(shown)) == shown


def test_columns_are_spark_s_own():
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    random = Random(4)
    for _ in range(50):
        columns = random_columns.columns(random)
        struct = StructType.fromJson(column_types.to_json(columns))
        assert str(to_arrow_schema(struct, timezone="UTC")) == str(columns)
        assert str(column_types.from_json(json.loads(struct.json()))) == str(columns)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "has its end where the name of a column should be"),
        ("a", "has its end where a type should be"),
        ("a int,", "has its end where the name of a column should be"),
        ("a int b int", "has 'b' where a comma or the end should be"),
        ("a int default 3", "has 'default' where a comma or the end should be"),
        ("a array<int", "has its end where '>' should be"),
        ("a map<int>", "has '>' where ',' should be"),
        ("a decimal(x)", "has 'x' where a number should be"),
        ("a decimal(39,1)", r"type decimal\(39,1\); a decimal has 1 to 38 digits"),
        ("a decimal(3,4)", r"type decimal\(3,4\); a decimal has 1 to 38 digits"),
        ("a int; b int", "has '; b int'"),
        ("a int, A int", "columns 'a' and 'A' differ at most in case"),
        ("s struct<x: int, X: int>", "columns 's.x' and 's.X' differ at most in case"),
        ("`` int", "a column has the name ''"),
        ("a varchar(10)", "column 'a' has type varchar, which a topic cannot store; cast it to string"),
        ("a interval day to second", "has type interval, which a topic cannot store; cast it to bigint or string"),
        ("a void", "has type void, which a topic cannot store; cast it to the type that it should have"),
        ("a variant", "has type variant, which a topic cannot store; write it as a string with to_json"),
        ("s struct<t: time>", "column 't' has type time, which a topic cannot store; cast it to string or bigint"),
        ("offset bigint", "column 'offset' cannot be stored: rows of a typed topic have a column of this name"),
        ("Timestamp timestamp", "column 'Timestamp' cannot be stored"),
        ("a " + "array<" * 40 + "int" + ">" * 40, "nested more than 32 levels deep"),
        ("{", "is not valid JSON"),
        ('{"type": "struct"}', "expected a struct of Spark as JSON"),
        ('{"type": "struct", "fields": []}', "needs at least one column"),
        ('{"type": "struct", "fields": [{"name": "a", "type": "interval day to second"}]}', "interval day to second"),
        ('{"type": "struct", "fields": [{"name": "a", "type": {"type": "udt"}}]}', "a user-defined type"),
        ('{"type": "struct", "fields": [{"name": "a"}]}', "expected a field with name and type"),
        (
            '{"type":"struct","fields":[{"name":"a","type":"string","metadata":{"__COLLATIONS":{"a":"UTF8_LCASE"}}}]}',
            "column 'a' has a collation",
        ),
        (
            '{"type":"struct","fields":[{"name":"a","type":"string","metadata":{"__CHAR_VARCHAR_TYPE_STRING":"char(3)"}}]}',
            r"column 'a' is char\(3\), whose length a topic does not keep; cast it to string before the write",
        ),
        (
            (
                '{"type":"struct","fields":[{"name":"a","type":{"type":"array","elementType":"string"},"metadata":{'
                '"__CHAR_VARCHAR_TYPE_STRING":"array<varchar(9)>"}}]}'
            ),
            r"column 'a' is array<varchar\(9\)>, whose length .* cast it to the same type with string",
        ),
    ],
)
def test_what_is_no_schema_is_refused(text, error):
    with pytest.raises(InvalidRecord, match=error):
        parse(text)


def test_dots_in_the_name_of_a_column_are_no_levels():
    name = ".".join("a" * 40)
    assert parse(f"`{name}` struct<`{name}`: int>").names == [name]


@pytest.mark.parametrize("kind", ["struct", "array", "map"])
def test_types_are_nested_32_levels_deep_and_no_deeper(kind):
    def nested(levels):
        found = "integer"
        for number in range(levels - 1):
            below = {"type": "struct", "fields": [{"name": "a", "type": found}]}
            if kind == "array" and number % 2:
                below = {"type": "array", "elementType": found}
            if kind == "map" and number % 2:
                below = {"type": "map", "keyType": "string", "valueType": found}
            found = below
        return {"type": "struct", "fields": [{"name": "a", "type": found}]}

    assert column_types.from_json(nested(32)).names == ["a"]
    with pytest.raises(InvalidRecord, match="nested more than 32 levels deep"):
        column_types.from_json(nested(33))


def test_a_topic_is_typed_by_its_first_schema():
    assert schema.is_typed(schema.typed(parse("key binary, value binary")))
    assert not any(schema.is_typed(each) for each in schema.RECORD_SCHEMAS)
    assert schema.columns_of(schema.typed(parse("a int"))).equals(parse("a int"))
    with pytest.raises(NewerFormat):
        schema.decode_all([schema.encode(schema.typed(parse("a int"))), schema.encode(schema.RECORD)], "the topic")
