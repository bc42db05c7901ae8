"""Where a batch read begins and ends, by every option and by their precedence."""

import warnings

import pytest

from pyspark_log.options import IgnoredOptionWarning, Latest, NoMatch
from pyspark_log.reading.positions import Subscribed, offset_for_time, resolve, warn_of_loss
from pyspark_log_coordinator.sync import catch_up, reassigner
from pyspark_log_coordinator.topic.machine import DeleteRecords
from pyspark_log_storage.errors import DataLoss, InvalidInput, InvalidOption, UnknownTopic
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic
from tests.support.direct import Stream, read, values
from tests.support.elsewhere import new_root
from tests.support.plain_log import NOON_MS, PlainLog


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Topic t: six rows in partition 0, a second apart, in two batches; two in partition 1; none in partition 2."""
    log = PlainLog(new_root(tmp_path_factory.mktemp("log")))
    log.create("t", 3)
    log.append("t", {0: [b"a0", b"a1", b"a2"], 1: [b"b0"]}, [NOON_MS, NOON_MS + 1000, NOON_MS + 2000, NOON_MS])
    log.append(
        "t", {0: [b"a3", b"a4", b"a5"], 1: [b"b1"]}, [NOON_MS + 3000, NOON_MS + 4000, NOON_MS + 5000, NOON_MS + 9000]
    )
    log.create("u")
    log.append("u", {0: [b"u0"]})
    log.create("empty", 2)
    return log.path


A, B = [b"a0", b"a1", b"a2", b"a3", b"a4", b"a5"], [b"b0", b"b1"]


def found(path, **options):
    return values(read(path, subscribe="t", **options))


def test_a_batch_reads_everything_by_default(path):
    assert found(path) == {0: A, 1: B}


def test_several_topics_are_read(path):
    assert {row["topic"] for row in read(path, subscribe="u, t")} == {"t", "u"}


def test_a_pattern_matches_whole_names(path):
    assert {row["topic"] for row in read(path, subscribePattern="t|U")} == {"t"}
    assert read(path, subscribePattern="nothing.*") == []


def test_assigned_partitions_alone_are_read(path):
    assert values(read(path, assign='{"t":[1]}')) == {1: B}


def test_an_assigned_partition_must_exist(path):
    with pytest.raises(InvalidInput, match="partition 3 of topic 't', which has 3"):
        read(path, assign='{"t":[0,3]}')


def test_a_missing_topic_is_an_error(path):
    with pytest.raises(UnknownTopic, match="topic 'x' does not exist"):
        read(path, subscribe="t,x")


def test_an_empty_topic_has_no_rows(path):
    assert read(path, subscribe="empty") == []


def test_specific_offsets_begin_and_end_the_read(path):
    start, end = '{"t":{"0":1,"1":-2,"2":0}}', '{"t":{"0":3,"1":-1,"2":-1}}'
    assert found(path, startingOffsets=start, endingOffsets=end) == {0: A[1:3], 1: B}


def test_earliest_and_latest_can_be_given(path):
    assert found(path, startingOffsets="earliest", endingOffsets="latest") == {0: A, 1: B}


def test_offsets_for_some_partitions_only_are_an_error(path):
    with pytest.raises(InvalidInput, match="for no other: t-1 has none, t-2 has none"):
        found(path, startingOffsets='{"t":{"0":1}}')


def test_offsets_for_other_partitions_are_an_error(path):
    with pytest.raises(InvalidInput, match="u-0 is not subscribed"):
        found(path, startingOffsets='{"t":{"0":1,"1":0,"2":0},"u":{"0":0}}')


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_an_offset_outside_the_log_is_a_loss(path, option):
    with pytest.raises(DataLoss, match="topic 't', partition 0 has no offset 7: its offsets are 0 to 6"):
        found(path, **{option: '{"t":{"0":7,"1":0,"2":0}}'})


def test_an_offset_outside_the_log_means_the_nearest_if_losses_do_not_matter(path):
    offsets = '{"t":{"0":7,"1":1,"2":0}}'
    assert found(path, startingOffsets=offsets, failOnDataLoss="false") == {1: B[1:]}
    assert found(path, endingOffsets=offsets, failOnDataLoss="false") == {0: A, 1: B[:1]}


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_an_offset_far_above_the_end_is_logged_if_losses_do_not_matter(path, option, caplog):
    warn_of_loss.cache_clear()
    found(path, **{option: '{"t":{"0":1000000,"1":0,"2":0}}'}, failOnDataLoss="false")
    [told] = [record.getMessage() for record in caplog.records]
    assert told.startswith("topic 't', partition 0 has no offset 1000000: its offsets are 0 to 6, where 6 is the next")
    assert told.endswith("; using 6 instead; continuing with the rest (failOnDataLoss=false)")


def test_a_time_begins_the_read_at_the_first_row_of_it_or_later(path):
    rows = found(path, startingTimestamp=NOON_MS + 1001, startingOffsetsByTimestampStrategy="latest")
    assert rows == {0: A[2:], 1: B[1:]}


def test_a_time_that_no_row_has_reached_is_an_error(path):
    with pytest.raises(InvalidInput, match=r"partition 2 has no row; set .*Strategy=latest"):
        found(path, startingTimestamp=NOON_MS)
    with pytest.raises(
        InvalidInput, match=r"partition 0 has no row at or after .*earlier time, or set .*Strategy=latest"
    ):
        found(path, startingOffsetsByTimestamp=f'{{"t":{{"0":{10**15},"1":0,"2":0}}}}')


def test_a_time_ends_the_read_before_the_first_row_of_it_or_later(path):
    assert found(path, endingTimestamp=NOON_MS + 3000) == {0: A[:3], 1: B[:1]}


def test_an_ending_time_that_no_row_has_reached_is_the_end(path):
    assert found(path, endingTimestamp=NOON_MS + 60_000) == {0: A, 1: B}


def test_each_partition_may_have_its_own_times(path):
    start = f'{{"t":{{"0":{NOON_MS + 4000},"1":{NOON_MS + 1},"2":{NOON_MS}}}}}'
    end = f'{{"t":{{"0":{NOON_MS + 5000},"1":{NOON_MS + 1},"2":{NOON_MS}}}}}'
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert found(path, startingOffsetsByTimestamp=start, **latest) == {0: A[4:], 1: B[1:]}
    assert found(path, endingOffsetsByTimestamp=end) == {0: A[:5], 1: B[:1]}


def test_times_for_some_partitions_only_are_an_error(path):
    with pytest.raises(InvalidInput, match="give a time for every subscribed partition"):
        found(path, startingOffsetsByTimestamp=f'{{"t":{{"0":{NOON_MS}}}}}')


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_positions_of_other_partitions_are_an_error_that_names_their_option(path, option):
    with pytest.raises(InvalidInput, match=f"option {option}: give an offset .*: t-3 is not subscribed"):
        found(path, **{option: '{"t":{"0":0,"1":0,"2":0,"3":0}}'})
    with pytest.raises(InvalidInput, match=f"option {option}ByTimestamp: give a time .*: t-1 has none, t-2 has none"):
        found(path, **{f"{option}ByTimestamp": f'{{"t":{{"0":{NOON_MS}}}}}'})
    word = "earliest" if option == "startingOffsets" else "latest"
    with pytest.raises(InvalidInput, match=f"option {option} names topic 'u', which is not subscribed"):
        found(path, **{option: f'{{"t":"{word}","u":"{word}"}}'})


def test_a_time_finds_the_first_late_row_among_rows_out_of_order(root):
    log = PlainLog(root)
    log.create("t")
    for times in ([NOON_MS + 50, NOON_MS], [NOON_MS + 10, NOON_MS + 20], [NOON_MS + 60, NOON_MS + 5]):
        log.append("t", {0: [b"%d" % (time - NOON_MS) for time in times]}, times)
    rows = read(root, subscribe="t", startingTimestamp=NOON_MS + 51)
    assert [row["value"] for row in rows] == [b"60", b"5"]
    assert len(read(root, subscribe="t", startingTimestamp=NOON_MS + 15)) == 6


LATEST_STRATEGY = {"startingOffsetsByTimestampStrategy": "latest"}
GLOBAL = {"startingTimestamp": str(NOON_MS + 5000)}
BY_PARTITION = {"startingOffsetsByTimestamp": f'{{"t":{{"0":{NOON_MS + 3000},"1":{NOON_MS},"2":0}}}}'}
OFFSETS = {"startingOffsets": '{"t":{"0":1,"1":0,"2":0}}'}


@pytest.mark.parametrize(
    ("options", "first"),
    [
        (GLOBAL | BY_PARTITION | OFFSETS, b"a5"),
        (GLOBAL | OFFSETS, b"a5"),
        (BY_PARTITION | OFFSETS, b"a3"),
        (OFFSETS, b"a1"),
        ({}, b"a0"),
    ],
)
def test_the_starting_options_have_kafkas_precedence(path, options, first):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IgnoredOptionWarning)
        assert found(path, **options, **LATEST_STRATEGY)[0][0] == first


@pytest.mark.parametrize(
    ("options", "last"),
    [
        (
            {
                "endingTimestamp": NOON_MS + 1000,
                "endingOffsetsByTimestamp": f'{{"t":{{"0":{NOON_MS + 3000},"1":0,"2":0}}}}',
                "endingOffsets": '{"t":{"0":5,"1":0,"2":0}}',
            },
            b"a0",
        ),
        (
            {
                "endingOffsetsByTimestamp": f'{{"t":{{"0":{NOON_MS + 3000},"1":0,"2":0}}}}',
                "endingOffsets": '{"t":{"0":5,"1":0,"2":0}}',
            },
            b"a2",
        ),
        ({"endingOffsets": '{"t":{"0":5,"1":0,"2":0}}'}, b"a4"),
        ({}, b"a5"),
    ],
)
def test_the_ending_options_have_kafkas_precedence(path, options, last):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IgnoredOptionWarning)
        assert found(path, **options)[0][-1] == last


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({}, {}),
        ({"startingOffsets": "latest"}, {}),
        ({"startingOffsets": "earliest"}, {0: A, 1: B}),
        ({"startingOffsets": '{"t":{"0":-1,"1":-2,"2":0}}'}, {1: B}),
        ({"startingOffsets": '{"t":"latest"}'}, {}),
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


def test_a_stream_that_starts_at_a_time_that_no_row_has_reached_fails(path):
    with pytest.raises(InvalidInput, match="partition 2 has no row; set"):
        Stream(path, subscribe="t", startingTimestamp=NOON_MS).batch()


@pytest.mark.parametrize(("seconds", "first"), [(0, 2), (2, 2), (3, 3), (4, 4)])
def test_a_time_is_found_if_the_log_starts_in_the_middle_of_a_chunk(root, seconds, first):
    log = PlainLog(root)
    log.create("t")
    log.append("t", {0: A}, [NOON_MS + 1000 * i for i in range(len(A))])
    log.log.topic("t").submit(DeleteRecords(0, 2))
    assert found(root, startingTimestamp=NOON_MS + 1000 * seconds) == {0: A[first:]}


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
LATEST_BEHIND = {"startingTimestamp": NOON_MS + 60_000, "endingOffsets": '{"t":{"0":5,"1":2,"2":0}}'}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (BEGINS_BEHIND, "endingTimestamp is at offset 1, which is before startingOffsets, at offset 4; set an end"),
        (ENDS_BEFORE, "endingOffsets is at offset 2, which is before startingTimestamp, at offset 3; set an end"),
        (LATEST_BEHIND, "endingOffsets is at offset 5, which is before startingTimestamp, at offset 6; set an end"),
    ],
)
@pytest.mark.parametrize("loss", ["true", "false"])
def test_an_end_before_the_start_is_an_error_also_between_offsets_and_times(path, options, message, loss):
    with pytest.raises(InvalidOption, match=f"topic 't', partition 0: {message}") as caught:
        found(path, **options, **LATEST_STRATEGY, failOnDataLoss=loss)
    assert caught.value.option == next(name for name in options if name.startswith("ending"))


def test_an_end_at_the_start_reads_nothing(path):
    assert found(path, startingOffsets='{"t":{"0":1,"1":1,"2":0}}', endingTimestamp=NOON_MS + 1000) == {}
    assert found(path, startingTimestamp=NOON_MS, endingTimestamp=NOON_MS, **LATEST_STRATEGY) == {}


def test_topic_wide_offsets_can_be_mixed_with_offsets_of_partitions(path):
    start, end = '{"t":{"0":4,"1":-2,"2":0},"u":"earliest"}', '{"t":"Latest","u":{"0":1}}'
    rows = read(path, subscribe="t,u", startingOffsets=start, endingOffsets=end)
    assert [row["value"] for row in rows if row["topic"] == "u"] == [b"u0"]
    assert values([row for row in rows if row["topic"] == "t"]) == {0: A[4:], 1: B}


def test_a_topic_wide_offset_is_for_the_assigned_partitions(path):
    assert values(read(path, assign='{"t":[1]}', startingOffsets='{"t":"earliest"}')) == {1: B}


def test_a_topic_wide_offset_is_for_the_partitions_at_planning(root):
    log = PlainLog(root)
    log.create("t")
    log.append("t", {0: [b"a"]})
    reassigner.add_partitions(log.log.topic("t"), 2)
    log.append("t", {1: [b"b"]})
    assert values(read(root, subscribe="t", startingOffsets='{"t":"earliest"}')) == {0: [b"a"], 1: [b"b"]}


def test_a_topic_wide_offset_must_be_of_a_subscribed_topic(path):
    with pytest.raises(
        InvalidInput, match=r"option startingOffsets names topic 'x', which is not subscribed \(subscribed: t\)"
    ):
        found(path, startingOffsets='{"t":"earliest","x":"earliest"}')


def test_every_subscribed_topic_needs_an_offset_if_one_has_a_topic_wide_offset(path):
    with pytest.raises(InvalidInput, match="for no other: u-0 has none"):
        read(path, subscribe="t,u", startingOffsets='{"t":"earliest"}')


def test_splits_by_rows_do_not_change_what_is_read(path):
    assert found(path, minPartitions=5, maxRecordsPerPartition=2) == {0: A, 1: B}
