"""Stored schemas."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import CorruptObject, NewerFormat

TYPES = st.recursive(
    st.sampled_from([pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.binary(), pa.bool_(), schema.TIMESTAMP]),
    lambda inner: st.builds(pa.list_, inner) | st.lists(inner, max_size=3).map(lambda types: pa.struct(fields(types))),
    max_leaves=5,
)


def fields(types):
    return [pa.field(f"column {i}", kind, nullable=i % 2 == 0) for i, kind in enumerate(types)]


@given(types=st.lists(TYPES, max_size=5))
def test_a_schema_comes_back(types):
    stored = pa.schema(fields(types))
    assert schema.decode(schema.encode(stored), "x").equals(stored, check_metadata=True)


def test_every_cut_is_noticed():
    data = schema.encode(schema.RECORD_WITH_HEADERS)
    for length in range(len(data)):
        with pytest.raises(CorruptObject, match="the topic"):
            schema.decode(data[:length], "the topic")


def test_a_topic_has_the_schemas_of_records_and_no_others():
    assert schema.RECORD_SCHEMAS[schema.RECORD_ID] is schema.RECORD
    assert schema.RECORD_SCHEMAS[schema.RECORD_WITH_HEADERS_ID] is schema.RECORD_WITH_HEADERS
    assert schema.RECORD_WITH_HEADERS.names == [*schema.RECORD.names, "headers"]
    stored = [schema.encode(each) for each in schema.RECORD_SCHEMAS]
    assert schema.decode_all(stored, "x") == schema.RECORD_SCHEMAS


@pytest.mark.parametrize(
    "other",
    [
        pa.schema([*schema.RECORD, ("headers", pa.list_(pa.binary()))]),
        pa.schema([schema.RECORD.field("value"), schema.RECORD.field("key"), schema.RECORD.field("timestamp")]),
        pa.schema([("key", pa.null()), ("value", pa.binary()), ("timestamp", schema.TIMESTAMP)]),
        schema.RECORD.with_metadata({"a": "b"}),
        pa.schema([("a", pa.large_string()), schema.ROW_TIME]),
        pa.schema([("a", pa.list_(pa.field("item", pa.int32()))), schema.ROW_TIME]),
        pa.schema([("offset", pa.int64()), schema.ROW_TIME]),
        pa.schema([schema.ROW_TIME]),
    ],
    ids=str,
)
def test_another_schema_of_a_topic_is_refused(other):
    with pytest.raises(NewerFormat, match="the topic"):
        schema.decode_all([schema.encode(other)], "the topic")
