"""Where a batch read begins and ends, by every option and by their precedence."""

import warnings

import pytest

from pyspark_log.options import IgnoredOptionWarning
from pyspark_log.options.position import Latest, NoMatch
from pyspark_log.reading.positions import Subscribed, offset_for_time, resolve, warn_of_loss
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_coordinator.sync import catch_up
from pyspark_log_storage.errors import DataLoss, InvalidInput, InvalidOption, UnknownTopic
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic
from tests.support.direct import Stream, read, values
from tests.support.plain_log import NOON_MS, PlainLog


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Topic t: six rows in partition 0, a second apart, in two batches; two in partition 1; none in partition 2."""
    log = PlainLog(tmp_path_factory.mktemp("log"))
    log.create("t", 3)
    log.append("t", {0: [b"a0", b"a1", b"a2"], 1: [b"b0"]}, [NOON_MS, NOON_MS + 1000, NOON_MS + 2000, NOON_MS])
    log.append(
        "t", {0: [b"a3", b"a4", b"a5"], 1: [b"b1"]}, [NOON_MS + 3000, NOON_MS + 4000, NOON_MS + 5000, NOON_MS + 9000]
    )
    log.create("u")
    log.append("u", {0: [b"u0"]})
    log.create("empty", 2)
    return log.path


LATEST_STRATEGY = {"startingOffsetsByTimestampStrategy": "latest"}
A, B = [b"a0", b"a1", b"a2", b"a3", b"a4", b"a5"], [b"b0", b"b1"]


def found(path, **options):
    return values(read(path, subscribe="t", **options))


def test_topics_are_read_by_name_by_pattern_or_by_partition(path):
    assert found(path) == {0: A, 1: B}
    assert {row["topic"] for row in read(path, subscribe="u, t")} == {"t", "u"}
    assert {row["topic"] for row in read(path, subscribePattern="t|U")} == {"t"}
    assert read(path, subscribePattern="nothing.*") == read(path, subscribe="empty") == []
    assert values(read(path, assign='{"t":[1]}', startingOffsets='{"t":"earliest"}')) == {1: B}
    with pytest.raises(InvalidInput, match="partition 3 of topic 't', which has 3"):
        read(path, assign='{"t":[0,3]}')
    with pytest.raises(UnknownTopic, match="topic 'x' does not exist"):
        read(path, subscribe="t,x")


def test_offsets_begin_and_end_the_read(path):
    start, end = '{"t":{"0":1,"1":-2,"2":0}}', '{"t":{"0":3,"1":-1,"2":-1}}'
    assert found(path, startingOffsets=start, endingOffsets=end) == {0: A[1:3], 1: B}
    start, end = '{"t":{"0":4,"1":-2,"2":0},"u":"earliest"}', '{"t":"Latest","u":{"0":1}}'
    rows = read(path, subscribe="t,u", startingOffsets=start, endingOffsets=end)
    assert [row["value"] for row in rows if row["topic"] == "u"] == [b"u0"]
    assert values([row for row in rows if row["topic"] == "t"]) == {0: A[4:], 1: B}


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_an_offset_outside_the_log_is_a_loss_or_means_the_nearest_one(path, option, caplog):
    with pytest.raises(DataLoss, match="topic 't', partition 0 has no offset 7: its offsets are 0 to 6"):
        found(path, **{option: '{"t":{"0":7,"1":0,"2":0}}'})
    warn_of_loss.cache_clear()
    rows = found(path, **{option: '{"t":{"0":1000000,"1":1,"2":0}}'}, failOnDataLoss="false")
    assert rows == ({1: B[1:]} if option == "startingOffsets" else {0: A, 1: B[:1]})
    [told] = [record.getMessage() for record in caplog.records]
    assert told.startswith("topic 't', partition 0 has no offset 1000000: its offsets are 0 to 6, where 6 is the next")
    assert told.endswith("; using 6 instead; continuing with the rest (failOnDataLoss=false)")


def test_a_time_begins_and_ends_the_read_at_the_first_row_of_it_or_later(path):
    assert found(path, startingTimestamp=NOON_MS + 1001, **LATEST_STRATEGY) == {0: A[2:], 1: B[1:]}
    assert found(path, endingTimestamp=NOON_MS + 3000) == {0: A[:3], 1: B[:1]}
    assert found(path, endingTimestamp=NOON_MS + 60_000) == {0: A, 1: B}, "no row has reached it"
    start = f'{{"t":{{"0":{NOON_MS + 4000},"1":{NOON_MS + 1},"2":{NOON_MS}}}}}'
    end = f'{{"t":{{"0":{NOON_MS + 5000},"1":{NOON_MS + 1},"2":{NOON_MS}}}}}'
    assert found(path, startingOffsetsByTimestamp=start, **LATEST_STRATEGY) == {0: A[4:], 1: B[1:]}
    assert found(path, endingOffsetsByTimestamp=end) == {0: A[:5], 1: B[:1]}


def test_a_starting_time_that_no_row_has_reached_is_an_error(path):
    with pytest.raises(InvalidInput, match=r"partition 2 has no row; set .*Strategy=latest"):
        found(path, startingTimestamp=NOON_MS)
    with pytest.raises(InvalidInput, match=r"0 has no row at or after .*earlier time, or set .*Strategy=latest"):
        found(path, startingOffsetsByTimestamp=f'{{"t":{{"0":{10**15},"1":0,"2":0}}}}')
    with pytest.raises(InvalidInput, match="partition 2 has no row; set"):
        Stream(path, subscribe="t", startingTimestamp=NOON_MS).batch()


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_positions_of_other_partitions_are_an_error_that_names_their_option(path, option):
    with pytest.raises(InvalidInput, match=f"option {option}: give an offset .*: t-3 is not subscribed"):
        found(path, **{option: '{"t":{"0":0,"1":0,"2":0,"3":0}}'})
    with pytest.raises(InvalidInput, match=f"option {option}ByTimestamp: give a time .*: t-1 has none, t-2 has none"):
        found(path, **{f"{option}ByTimestamp": f'{{"t":{{"0":{NOON_MS}}}}}'})
    with pytest.raises(InvalidInput, match="for no other: u-0 has none"):
        read(path, subscribe="t,u", startingOffsets='{"t":"earliest"}')
    word = "earliest" if option == "startingOffsets" else "latest"
    with pytest.raises(InvalidInput, match=f"option {option} names topic 'u', which is not subscribed"):
        found(path, **{option: f'{{"t":"{word}","u":"{word}"}}'})


GLOBAL = {"startingTimestamp": str(NOON_MS + 5000)}
BY_PARTITION = {"startingOffsetsByTimestamp": f'{{"t":{{"0":{NOON_MS + 3000},"1":{NOON_MS},"2":0}}}}'}
OFFSETS = {"startingOffsets": '{"t":{"0":1,"1":0,"2":0}}'}


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({}, {}),
        ({"startingOffsets": "latest"}, {}),
        ({"startingOffsets": '{"t":{"0":-1,"1":-2,"2":0}}'}, {1: B}),
        ({"startingOffsets": '{"t":"earliest"}'}, {0: A, 1: B}),
        (OFFSETS, {0: A[1:], 1: B}),
        (GLOBAL | OFFSETS | LATEST_STRATEGY, {0: A[5:], 1: B[1:]}),
        (BY_PARTITION | OFFSETS | LATEST_STRATEGY, {0: A[3:], 1: B}),
    ],
)
def test_a_stream_starts_where_its_options_say(path, options, first):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IgnoredOptionWarning)
        assert values(Stream(path, subscribe="t", **options).batch()) == first


@pytest.mark.parametrize(("seconds", "first"), [(0, 2), (2, 2), (3, 3), (4, 4)])
def test_a_time_is_found_if_the_log_starts_in_the_middle_of_a_chunk(tmp_path, seconds, first):
    log = PlainLog(tmp_path)
    log.create("t")
    log.append("t", {0: A}, [NOON_MS + 1000 * i for i in range(len(A))])
    log.log.topic("t").submit(DeleteRecords(0, 2))
    assert found(tmp_path, startingTimestamp=NOON_MS + 1000 * seconds) == {0: A[first:]}


def test_latest_is_the_high_watermark():
    """Behind it are rows that an election may still cut."""
    topic = ReplicatedTopic()
    topic.append({0: [b"committed"] * 2}, on=ALL, acks="all")
    topic.append({0: [b"of the leader alone"]}, on=["0"], acks="1")
    now = Subscribed({"t": topic.handle}, {"t": (0,)})
    assert resolve(now, Latest(), NoMatch.ERROR, ending=False, fail_on_data_loss=True) == {("t", 0): 2}


def test_a_time_that_only_rows_above_the_high_watermark_have_reached_is_not_found():
    topic = ReplicatedTopic()
    topic.append({0: [b"deleted"] * 2}, on=ALL, acks="all")
    topic.handle.submit(DeleteRecords(0, 2))
    topic.append({0: [b"of the leader alone"]}, on=["0"], acks="1")
    assert (topic.partition().high_watermark, topic.partition().log_end) == (2, 3)
    assert offset_for_time(topic.handle, 0, 0) is None
    catch_up.catch_up(topic.handle, "1")
    catch_up.catch_up(topic.handle, "2")
    assert offset_for_time(topic.handle, 0, 0) == 2


BEGINS_BEHIND = {"startingOffsets": '{"t":{"0":4,"1":2,"2":0}}', "endingTimestamp": NOON_MS + 1000}
ENDS_BEFORE = {"startingTimestamp": NOON_MS + 3000, "endingOffsets": '{"t":{"0":2,"1":2,"2":0}}'}
BOTH_OFFSETS = {"startingOffsets": '{"t":{"0":4,"1":2,"2":0}}', "endingOffsets": '{"t":{"0":3,"1":2,"2":0}}'}
TIMES = [f'{{"t":{{"0":{NOON_MS + each},"1":0,"2":0}}}}' for each in (3000, 1000)]
BOTH_TIMES = dict(zip(("startingOffsetsByTimestamp", "endingOffsetsByTimestamp"), TIMES, strict=True))
LATEST_BEHIND = {"startingTimestamp": NOON_MS + 60_000, "endingOffsets": '{"t":{"0":5,"1":2,"2":0}}'}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (BEGINS_BEHIND, "endingTimestamp is at offset 1, which is before startingOffsets, at offset 4; set an end"),
        (ENDS_BEFORE, "endingOffsets is at offset 2, which is before startingTimestamp, at offset 3; set an end"),
        (BOTH_OFFSETS, "endingOffsets is at offset 3, which is before startingOffsets, at offset 4; set an end"),
        (
            BOTH_TIMES,
            "endingOffsetsByTimestamp is at offset 1, which is before startingOffsetsByTimestamp, at offset 3",
        ),
        (LATEST_BEHIND, "endingOffsets is at offset 5, which is before startingTimestamp, at offset 6; set an end"),
    ],
)
@pytest.mark.parametrize("loss", ["true", "false"])
def test_an_end_before_the_start_is_an_error_also_between_offsets_and_times(path, options, message, loss):
    with pytest.raises(InvalidOption, match=f"topic 't', partition 0: {message}") as caught:
        found(path, **options, **LATEST_STRATEGY, failOnDataLoss=loss)
    assert caught.value.option == next(name for name in options if name.startswith("ending"))
