"""Rows that cannot be written: they are in the dead letter topic with the reason, and the others are written."""

import random

import pyarrow as pa
import pytest

from pyspark_log.writing.dead_letters import HEADERS, DeadLetters
from pyspark_log.writing.destination import destination_of
from pyspark_log.writing.rows import rows_of
from pyspark_log_coordinator.commit.commit import commit_staged
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import InvalidRecord, UnknownTopic
from tests.support.direct import read
from tests.support.plain_log import MESSAGE_BYTES_MAX, PlainLog

LIMIT = 100
NOW_US = 1_700_000_000_000_000


@pytest.fixture
def log(tmp_path):
    made = PlainLog(tmp_path)
    made.create("t", 2, max_message_bytes=LIMIT)
    made.create("u")
    made.create("dead", 3)
    return made


def staged(log, *batches, topic=None):
    """What a task stages of batches, and how many dead letters it counts."""

    def destination(name):
        return destination_of(log.log.topic(name), None, MESSAGE_BYTES_MAX)

    def made(batch):
        return rows_of(batch, now_us=NOW_US, by_topic_column=topic is None)

    task, dead = log.staging(topic), log.staging("dead")
    letters = DeadLetters(made, destination, topic, None, "dead", dead)
    for columns in batches:
        for rows in letters.passed(pa.RecordBatch.from_pydict(columns), NOW_US):
            task.add(rows)
    return task.finish() + dead.finish(), letters.count


def write(log, *batches, **options):
    files, count = staged(log, *batches, **options)
    commit_staged(log.log, [files], None, "all", RetryPolicy(), options.get("topic"))
    return count


def values(log, topic):
    return sorted((row["partition"], row["value"]) for row in read(log.path, subscribe=topic))


def letters(log):
    """Value, own headers, and what the other headers say of each dead letter."""
    found = []
    for row in read(log.path, subscribe="dead", includeHeaders="true"):
        headers = [(each["key"], each["value"]) for each in row["headers"]]
        said = dict(headers[-len(HEADERS) :])
        assert tuple(said) == HEADERS
        found.append((row["value"], headers[: -len(HEADERS)], *(said[name] for name in HEADERS)))
    return sorted(found)


def test_a_dead_letter_without_a_key_is_refused_by_a_compacted_topic_which_would_drop_it(log):
    log.log.topic("dead").alter_config({"cleanup.policy": "compact"})
    large = b"x" * (LIMIT + 1)
    assert write(log, {"key": [b"k"], "value": [large]}, topic="t") == 1
    with pytest.raises(InvalidRecord, match="topic 'dead': a row has no key, and the topic has cleanup"):
        write(log, {"value": [large]}, topic="t")
    assert [letter[0] for letter in letters(log)] == [large]


def test_a_row_of_a_topic_that_does_not_exist_is_a_dead_letter_unless_the_options_name_it(log):
    write(log, {"value": [b"a", b"b"], "topic": ["u", "missing"]})
    [(value, _, topic, _, error, reason)] = letters(log)
    assert values(log, "u") == [(0, b"a")]
    assert (value, topic, error) == (b"b", b"missing", b"UnknownTopic")
    assert reason.startswith(b"topic 'missing' does not exist")
    with pytest.raises(UnknownTopic):
        staged(log, {"value": [b"a"]}, topic="missing")


def with_wrong_key(*keys):
    """A column with one header for each key, in bytes that need not be UTF-8."""
    texts = pa.array(keys, pa.binary())
    texts = pa.Array.from_buffers(pa.string(), len(keys), texts.buffers())
    entries = pa.StructArray.from_arrays([texts, pa.array([b"v"] * len(keys))], ["key", "value"])
    return pa.ListArray.from_arrays(pa.array(range(len(keys) + 1), pa.int32()), entries)


def test_a_row_with_a_wrong_header_is_a_dead_letter_with_what_can_be_kept_of_it(log):
    headers = with_wrong_key(b"good", b"b\xffd", "größe".encode(), b"\xc3")
    write(log, {"value": [b"a", b"b", b"c", b"d"], "headers": headers}, topic="u")
    header = {"key": "h", "value": b"1"}
    write(log, {"value": [b"e"], "headers": pa.array([[header, None]], schema.HEADERS)}, topic="u")
    rows = read(log.path, subscribe="u", includeHeaders="true")
    assert [(row["value"], row["headers"][0]["key"]) for row in rows] == [(b"a", "good"), (b"c", "größe")]
    assert [(value, own) for value, own, *_ in letters(log)] == [
        (b"b", [("b\N{REPLACEMENT CHARACTER}d", b"v")]),
        (b"d", [("\N{REPLACEMENT CHARACTER}", b"v")]),
        (b"e", [("h", b"1")]),
    ]


def test_a_dead_letter_keeps_key_headers_and_timestamp(log):
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    own = [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None, [], [{"key": "i", "value": b"2"}]]
    times = pa.array([1_000_000, 2_000_000, 3_000_000, 4_000_000], schema.TIMESTAMP)
    columns = {"key": ["k0", None, "k2", "k3"], "value": [None, b"1", b"2", b"3"], "timestamp": times}
    write(log, columns | {"headers": pa.array(own, kind), "topic": pa.nulls(4, pa.string())})
    rows = read(log.path, subscribe="dead", includeHeaders="true")
    rows = sorted(rows, key=lambda row: row["timestamp"])
    assert [row["key"] for row in rows] == [b"k0", None, b"k2", b"k3"]
    assert [row["value"] for row in rows] == [None, b"1", b"2", b"3"]
    assert [row["timestamp"].second for row in rows] == [1, 2, 3, 4]
    assert [row["headers"][: -len(HEADERS)] for row in rows] == [each or [] for each in own]


def test_dead_letters_of_a_batch_that_is_written_again_are_in_the_log_once_though_the_batch_was_committed_alone(log):
    columns = {"value": [b"a", b"x" * 200], "partition": pa.array([0, 0], pa.int32())}
    claim = ProducerClaim("query", "query", "run", 4)
    files, _ = staged(log, columns, topic="t")
    commit_staged(log.log, [[file for file in files if file.topic == "t"]], claim, "all", RetryPolicy(), "t")
    assert (len(values(log, "t")), letters(log)) == (1, [])
    for _ in range(2):
        commit_staged(log.log, [staged(log, columns, topic="t")[0]], claim, "all", RetryPolicy(), "t")
        assert len(values(log, "t")) == len(letters(log)) == 1


@pytest.mark.parametrize("seed", range(4))
def test_every_row_is_written_or_a_dead_letter(log, seed):
    dice = random.Random(seed)
    rows = dice.randrange(1, 60)
    topics = [dice.choice(["t", "u", "missing", None]) for _ in range(rows)]
    partitions = [dice.choice([None, 0, 1, 2]) for _ in range(rows)]
    bodies = [b"%d " % n + b"x" * dice.choice([0, LIMIT]) for n in range(rows)]
    batch = {"value": bodies, "topic": pa.array(topics, pa.string()), "partition": pa.array(partitions, pa.int32())}
    count = write(log, batch)

    def is_good(topic, partition, body):
        most = {"t": (2, LIMIT), "u": (1, MESSAGE_BYTES_MAX)}
        return topic in most and (partition or 0) < most[topic][0] and len(body) <= most[topic][1]

    good = [is_good(*row) for row in zip(topics, partitions, bodies, strict=True)]
    written = sorted(value for topic in ("t", "u") for _, value in values(log, topic))
    assert written == sorted(body for body, fine in zip(bodies, good, strict=True) if fine)
    dead = [value for value, *_ in letters(log)]
    assert dead == sorted(body for body, fine in zip(bodies, good, strict=True) if not fine)
    assert count == len(dead)


def test_a_row_of_the_future_is_a_dead_letter_of_now_and_the_others_are_written(log):
    times = pa.array([NOW_US, NOW_US * 1000], pa.timestamp("us"))
    batch = {"value": [b"a", b"b"], "partition": pa.array([0, 0], pa.int32()), "timestamp": times}
    assert write(log, batch, topic="t") == 1
    assert values(log, "t") == [(0, b"a")]
    ((value, _, topic, _, error, reason),) = letters(log)
    assert (value, topic, error) == (b"b", b"t", b"InvalidRecord")
    assert b"the time of a row is 1700000000000000 ms after 1970" in reason
