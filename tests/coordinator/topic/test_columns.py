"""The columns of a typed topic in its journal."""

from random import Random

import msgspec
import pytest

from pyspark_log_coordinator.model import topic_state
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.topic.columns import SCHEMAS_MAX, EvolveSchema
from pyspark_log_coordinator.topic.machine import MACHINE, AlterConfig, StartTopic, TopicStarted
from pyspark_log_coordinator.topic.sequencing import BatchSequenced
from pyspark_log_storage.columns import schema
from pyspark_log_storage.columns.column_ddl import parse
from pyspark_log_storage.columns.column_types import ddl
from pyspark_log_storage.errors import InvalidOption, InvalidRecord
from tests.support.coordinator.topics import after, commit, decide, file, incarnation, started
from tests.support.storage import random_columns


def typed(columns: str) -> Topic:
    """Return a typed topic without rows."""
    began = TopicStarted(
        name="t",
        topic_id="1",
        config=TopicConfig(),
        schemas=(schema.encode(schema.typed(parse(columns))),),
        incarnations={"A": incarnation("A")},
        assignments=(("A",),),
    )
    return after(Topic(), StartTopic(began))


def evolution(columns: str, *, relax: bool = False) -> EvolveSchema:
    return EvolveSchema(schema.encode(parse(columns)), relax)


def columns_of(topic: Topic) -> list[str]:
    return [ddl(schema.columns_of(each)) for each in schema.decode_all(topic.schemas, "t")]


def with_schema_id(sequenced, number):
    chunks = tuple(msgspec.structs.replace(each, schema_id=number) for each in sequenced.chunks)
    return msgspec.structs.replace(sequenced, chunks=chunks)


def test_each_evolution_adds_a_schema_and_columns_that_the_topic_holds_change_nothing():
    topic = after(typed("id INT"), evolution("id BIGINT, name STRING"))
    for held in ("id BIGINT, name STRING", "name STRING", "id INT", "name STRING NOT NULL, id SMALLINT"):
        assert decide(topic, evolution(held)) == []
    topic = after(topic, evolution("at DATE"))
    assert columns_of(topic) == ["id INT", "id BIGINT, name STRING", "id BIGINT, name STRING, at DATE"]


def test_an_evolution_that_contradicts_the_topic_is_refused_by_name():
    topic = after(typed("a INT"), evolution("b STRING"))
    with pytest.raises(InvalidRecord, match=r"topic 't': column 'b' is string and cannot become date; cast it"):
        decide(topic, evolution("b DATE"))
    with pytest.raises(InvalidRecord, match="topic 't' holds records"):
        decide(started(), evolution("a INT"))
    with pytest.raises(InvalidRecord, match="topic 't': column 'offset' cannot be stored"):
        decide(topic, EvolveSchema(schema.encode(schema.pa.schema([("offset", schema.pa.int64())]))))


def test_the_number_of_schemas_is_limited():
    topic = typed("a INT")
    topic = msgspec.structs.replace(topic, schemas=topic.schemas * SCHEMAS_MAX)
    assert decide(topic, evolution("a INT")) == []
    with pytest.raises(InvalidRecord, match="has 1000 schemas, the maximum"):
        decide(topic, evolution("b INT"))


def test_a_chunk_of_a_schema_that_the_topic_lacks_is_refused():
    topic = typed("a INT")
    second = with_schema_id(file({0: 1}), 1)
    with pytest.raises(InvalidRecord, match=r"topic 't', partition 0: a chunk of the batch has schema 1, and .* has 1"):
        decide(topic, commit(None, second))
    with pytest.raises(ValueError, match="a chunk has a schema that the topic lacks"):
        MACHINE.evolve(topic, BatchSequenced(None, 1, "all", (second,), 0))
    evolved = after(topic, evolution("a BIGINT"))
    assert after(evolved, commit(None, second)).partitions[0].log_end == 1


def test_random_evolutions_come_back_from_a_snapshot():
    random = Random(5)
    for _ in range(20):
        columns = random_columns.columns(random)
        topic = typed(ddl(columns))
        columns = schema.columns_of(schema.decode_all(topic.schemas, "t")[0])
        for _ in range(4):
            columns = random_columns.evolved(random, columns)
            command = EvolveSchema(schema.encode(columns), relax=True)
            topic = after(topic, command)
            assert topic_state.decode(msgspec.msgpack.encode(topic)) == topic
        assert schema.decode_all(topic.schemas, "t")[-1].equals(schema.typed(columns))


def test_the_key_columns_of_a_topic_are_set_once():
    topic = after(typed("id INT, name STRING"), AlterConfig({"key.column": "id"}))
    for other in ("", "name", "id,name"):
        with pytest.raises(InvalidOption, match=r"topic 't' has key\.column=id, and rows of a key would be in two"):
            decide(topic, AlterConfig({"key.column": other}))
    assert after(topic, AlterConfig({"key.column": "ID"})).config.key_column == "id"
