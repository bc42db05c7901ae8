"""The micro-batches of a streaming read, planned and read step by step."""

import json
import re

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_log.opening import open_log
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_coordinator.sync import reassigner
from pyspark_log_storage.errors import DataLoss, InvalidOption, NoCluster
from tests.support.direct import Stream, values
from tests.support.plain_log import PlainLog


@pytest.fixture
def log(tmp_path):
    made = PlainLog(tmp_path / "log")
    made.create("t", 2)
    made.append("t", {0: [b"a%d" % i for i in range(8)], 1: [b"b0", b"b1"]})
    return made


def earliest(log, **options):
    return Stream(log.path, **{"subscribe": "t", "startingOffsets": "earliest"} | options)


def earliest_from(log, start):
    return Stream(log.path, start, subscribe="t", startingOffsets="earliest")


@pytest.mark.parametrize("options", [{"subscribe": "t"}, {"subscribePattern": "none.*"}])
def test_another_log_at_the_address_is_refused_and_its_groups_stay_as_they_are(log, tmp_path, options):
    given = {"startingOffsets": "earliest", "failOnDataLoss": "false", "group.id": "g"} | options
    stream = Stream(log.path, **given)
    stream.batch()
    (first,) = stream.ends or [json.loads(json.dumps(stream.start))]
    other = PlainLog(tmp_path / "other")
    other.create("t", 2)
    other.append("t", {0: [b"other"]})
    restarted = Stream(other.path, stream.start, **given)
    for call in (restarted.batch, lambda: restarted.between(stream.reader.initialOffset(), first)):
        with pytest.raises(NoCluster, match=f"the log at {other.path} is cluster .*is the right disk mounted"):
            call()
    assert not other.log.groups()


def test_available_now_ends_where_the_log_ended_at_its_start(log):
    stream = earliest(log, maxOffsetsPerTrigger=6, minOffsetsPerTrigger=6)
    stream.reader.prepareForTriggerAvailableNow()
    log.append("t", {0: [b"late"]})
    log.create("t2")
    batches = list(iter(stream.batch, None))
    assert [len(batch) for batch in batches] == [5, 5]


def test_available_now_leaves_a_later_topic_at_its_log_start(log):
    options = {"subscribePattern": "t.*", "startingOffsets": "earliest"}
    stream = Stream(log.path, **options, maxOffsetsPerTrigger=6)
    stream.reader.prepareForTriggerAvailableNow()
    assert len(stream.batch()) == 5
    log.create("t2")
    log.append("t2", {0: [b"gone", b"gone too", b"kept"]})
    log.log.topic("t2").submit(DeleteRecords(0, 2))
    assert [len(batch) for batch in iter(stream.batch, None)] == [5]
    another = Stream(log.path, stream.start, **options)
    assert values(another.batch()) == {0: [b"kept"]}


def test_a_topic_that_is_not_subscribed_for_some_time_is_read_on_where_it_was(log):
    log.create("u", 2)
    log.append("u", {0: [b"u0", b"u1"], 1: [b"v0"]})
    earlier = earliest(log, subscribe="t,u")
    assert len(earlier.batch()) == 13
    without = earliest_from(log, earlier.start)
    with pytest.raises(DataLoss, match="topic 'u', partition 0 does not exist or is not subscribed any more"):
        without.batch()
    start = earlier.start
    for value in (b"t+", b"t++"):
        log.append("t", {0: [value]})
        log.append("u", {0: [b"u" + value]})
        without = Stream(log.path, start, subscribe="t", failOnDataLoss="false")
        assert values(without.batch()) == {0: [value]}
        start = without.start
    assert not Stream(log.path, start, assign='{"t": [0, 1], "u": [1]}').batch()
    again = Stream(log.path, start, subscribe="t,u")
    assert values(again.batch()) == {0: [b"ut+", b"ut++"]}
    assert again.start["topics"]["u"]["begin"] == {"0": [2, 0], "1": [1, 0]}
    assert "away" not in again.start
    log.delete("u")
    log.append("t", {0: [b"t+++"]})
    later = Stream(log.path, start, subscribe="t")
    later.batch()
    assert "away" not in later.start, "a topic that was deleted is forgotten"


def test_partitions_added_while_the_query_runs_are_read_from_their_first_row(log):
    stream = Stream(log.path, subscribe="t", startingOffsets="latest")
    initial = stream.start
    assert stream.batch() == []
    log.append("t", {0: [b"x"]})
    first = stream.batch()
    reassigner.add_partitions(log.log.topic("t"), 4)
    log.append("t", {0: [b"y"], 3: [b"new"]})
    second = stream.batch()
    log.append("t", {2: [b"later"], 3: [b"more"]})
    assert values(first) == {0: [b"x"]}
    assert values(second) == {0: [b"y"], 3: [b"new"]}
    assert values(stream.batch()) == {2: [b"later"], 3: [b"more"]}
    again = Stream(log.path, subscribe="t", startingOffsets="latest")
    assert again.between(initial, stream.ends[0]) == []
    assert again.between(stream.ends[0], stream.ends[1]) == first
    assert again.between(stream.ends[1], stream.ends[2]) == second


@pytest.mark.parametrize(("pattern", "hint"), [(r"flihgts\..*", "did you mean flights"), ("x+", "the topics are: ")])
def test_a_pattern_that_matches_nothing_warns_and_names_near_topics(log, caplog, pattern, hint):
    for name in ("flights", "Flights-2"):
        log.create(name)
    Stream(log.path, subscribePattern=pattern).batch()
    [message] = [each.message for each in caplog.records if "subscribePattern" in each.message]
    assert re.search(hint, message)


def test_a_checkpoint_of_kafka_is_named_with_the_offsets_that_continue_it(log):
    stream = earliest(log)
    with pytest.raises(InvalidOption, match="the checkpoint is that of a query that read Kafka") as raised:
        stream.reader.latestOffset({"t": {"0": 5, "1": 2}}, ReadAllAvailable())
    with pytest.raises(InvalidOption, match=r"startingOffsets', '{\"t\":{\"0\":5,\"1\":2}}'"):
        stream.reader.partitions({"t": {"0": 5, "1": 2}}, {"t": {"0": 8, "1": 2}})
    with pytest.raises(InvalidOption, match=r"set a new checkpointLocation$"):  # batch 0 was not committed
        stream.reader.partitions(stream.reader.initialOffset(), {"t": {"0": 8, "1": 2}})
    (starting,) = re.findall(r"option\('startingOffsets', '(.*)'\)", raised.value.message)
    assert values(earliest(log, startingOffsets=starting).batch()) == {0: [b"a5", b"a6", b"a7"]}


def recreate(log, *values):
    log.delete("t")
    log.create("t", 2)
    log.append("t", {0: list(values)})


def test_available_now_leaves_a_recreated_topic_to_the_next_run_and_ends_whatever_comes(log):
    stream = earliest(log, maxOffsetsPerTrigger=5, failOnDataLoss="false")
    stream.reader.prepareForTriggerAvailableNow()
    assert len(stream.batch()) == 5
    recreate(log, b"again")
    assert stream.batch() is None
    log.append("t", {0: [b"more"]})
    assert stream.batch() is None
    recreate(log, b"and again")
    assert stream.batch() is None
    another = Stream(log.path, stream.start, subscribe="t", failOnDataLoss="false")
    another.reader.prepareForTriggerAvailableNow()
    assert values(another.batch()) == {0: [b"and again"]}
    assert another.batch() is None
    with pytest.raises(DataLoss, match="topic 't' was deleted and created again"):
        Stream(log.path, stream.start, subscribe="t").batch()


def test_available_now_leaves_rows_in_place_of_truncated_ones_to_the_next_run(log):
    stream = Stream(log.path, assign='{"t":[0]}', startingOffsets="earliest", maxOffsetsPerTrigger=2)
    stream.reader.prepareForTriggerAvailableNow()
    stream.batch()
    journal = open_log(log.path).topic("t").journal
    first, second = journal.state.partitions
    cut = msgspec.structs.replace(first, epoch_starts=((0, 0), (1, 3)), leader_epoch=1)  # and rows 3 to 7 came since
    journal.state = msgspec.structs.replace(journal.state, partitions=(cut, second))
    assert [len(batch) for batch in iter(stream.batch, None)] == [1]


def test_a_batch_of_a_topic_that_was_recreated_since_is_a_loss(log):
    stream = earliest(log)
    start = stream.start
    stream.batch()
    recreate(log, *[b"again"] * 20)
    with pytest.raises(DataLoss, match="topic 't' was deleted and created again"):
        stream.between(start, stream.ends[0])
    assert earliest(log, failOnDataLoss="false").between(start, stream.ends[0]) == []


def test_the_lag_is_that_of_the_last_plan(log):
    stream = earliest(log, maxOffsetsPerTrigger=5)
    stream.batch()
    assert stream.reader.reportLatestOffset() == {
        "topics": {"t": {"0": 8, "1": 2}},
        "offsetsBehindLatest": {
            "minOffsetsBehindLatest": "1",
            "maxOffsetsBehindLatest": "4",
            "avgOffsetsBehindLatest": "2.5",
        },
        "underReplicatedPartitions": "0",
        "offlinePartitions": "0",
    }
