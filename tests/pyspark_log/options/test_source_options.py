"""The options of a source: subscription, start, end and limits."""

import pytest

from pyspark_log.options import IgnoredOptionWarning, parse_source
from pyspark_log.options.position import (
    CommittedOffsets,
    Earliest,
    GlobalTimestamp,
    Latest,
    NoMatch,
    SpecificOffsets,
    Timestamps,
)
from pyspark_log.options.subscription import Assign, Subscribe, SubscribePattern
from tests.support.pyspark_log.parsed_options import batch, refusal, stream


def subscribed(**options):
    return parse_source({"path": "/r", **options}, streaming=True)


def test_a_stream_begins_at_the_latest_offset_and_a_batch_read_at_the_earliest():
    found = stream()
    assert (found.starting, found.ending, found.group_id) == (Latest(), Latest(), "")
    assert (batch().starting, batch().ending) == (Earliest(), Latest())


def test_values_may_be_numbers_and_booleans_as_in_sparks_option():
    given = {"minPartitions": 8, "failOnDataLoss": False, "startingTimestamp": 5_000, "maxRecordsPerPartition": None}
    parsed = parse_source({"path": "/r", "subscribe": "t", **given}, streaming=False)
    assert (parsed.min_partitions, parsed.fail_on_data_loss) == (8, False)
    assert (parsed.starting, parsed.max_records_per_partition) == (GlobalTimestamp(5_000), None)


# What is read


def test_a_subscription_is_a_list_a_pattern_of_whole_names_or_partitions():
    assert stream(subscribe=" b, a,,b ").subscription == Subscribe(("b", "a"))
    pattern = subscribed(subscribepattern="to.*c|x").subscription
    assert pattern == SubscribePattern("to.*c|x")
    assert pattern.names(lambda: ("topic", "topics", "atopic", "x", "xy")) == ["topic", "x"]
    assert subscribed(assign='{"t":[1,0,1],"u":[]}').subscription == Assign({"t": (0, 1)})
    assert str(refusal(subscribed)).endswith("found none of them")
    assert "; found subscribe and assign" in str(refusal(stream, assign='{"t":[0]}'))


@pytest.mark.parametrize(
    ("option", "text", "reason"),
    [
        ("subscribe", " , ", "it names no topic"),
        ("subscribe", "a,b/c", "only ASCII letters, digits, '.', '_' and '-' are allowed"),
        ("subscribePattern", "", "it is empty"),
        ("subscribePattern", "[a-z&&[^b]]", "it is not a valid Python regular expression"),
        ("assign", '{"t":0}', "it cannot be parsed"),
        ("assign", '{"t":[-1]}', "partition -1 of topic t is out of range"),
        ("assign", '{"t":[]}', "it assigns no partition"),
    ],
)
def test_a_subscription_that_cannot_be_used_is_refused(option, text, reason):
    error = refusal(subscribed, **{option.lower(): text})
    assert (error.option, reason in str(error)) == (option, True)


# Where it begins and ends


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", Earliest()),
        (" Latest ", Latest()),
        ('{"t":{"0":23,"1":-2,"2":-1}}', SpecificOffsets({"t": {0: 23, 1: -2, 2: -1}})),
        ('{"t":{"0":"23"}}', SpecificOffsets({"t": {0: 23}})),
        ('{"t":"EARLIEST","u":"latest"}', SpecificOffsets({}, {"t": -2, "u": -1})),
        ('{"t":{"0":23},"u":"latest"}', SpecificOffsets({"t": {0: 23}}, {"u": -1})),
    ],
)
def test_a_stream_begins_at_a_word_or_offsets(text, position):
    assert stream(startingoffsets=text).starting == position


def test_a_batch_read_never_begins_at_the_latest_offset_and_never_ends_at_the_earliest():
    for option, text, said in (
        ("startingOffsets", "latest", "it is not a known value; expected earliest, or JSON with an offset"),
        ("startingOffsets", '{"t":{"0":1,"1":-1}}', "the offset -1 of t-1 is out of range"),
        ("startingOffsets", '{"t":{"0":1},"u":"latest"}', "'latest' of topic u is no offset"),
        ("endingOffsets", "earliest", "it is not a known value; expected latest, or JSON with an offset"),
        ("endingOffsets", '{"t":{"0":-2}}', "the offset -2 of t-0 is out of range"),
        ("endingOffsets", '{"t":"earliest"}', "'earliest' of topic t is no offset"),
    ):
        assert str(refusal(batch, **{option.lower(): text})).startswith(f"option {option} is {text!r}: {said}")


def test_times_are_for_all_or_for_each_partition_and_take_precedence_over_offsets():
    assert batch(startingoffsetsbytimestamp='{"t":{"0":1000}}').starting == Timestamps({"t": {0: 1000}})
    given = {
        "startingoffsets": "no position at all",
        "startingoffsetsbytimestamp": '{"t":{"0":1}}',
        "startingtimestamp": "2",
    }
    with pytest.warns(
        IgnoredOptionWarning,
        match=r"startingOffsetsByTimestamp \(startingTimestamp takes precedence\), startingOffsets \(starting",
    ):
        assert stream(**given).starting == GlobalTimestamp(2)
    del given["startingtimestamp"]
    with pytest.warns(IgnoredOptionWarning, match=r"startingOffsets \(startingOffsetsByTimestamp takes precedence"):
        assert stream(**given).starting == Timestamps({"t": {0: 1}})
    given = {"endingtimestamp": "7", "endingoffsetsbytimestamp": '{"t":{"0":1}}', "endingoffsets": "latest"}
    with pytest.warns(IgnoredOptionWarning, match=r"endingOffsetsByTimestamp \(endingTimestamp .*endingOffsets \("):
        assert batch(**given).ending == GlobalTimestamp(7)
    assert stream(startingoffsetsbytimestampstrategy="LATEST").starting_no_match is NoMatch.LATEST


@pytest.mark.parametrize(
    ("option", "text", "reason"),
    [
        ("startingOffsets", '{"t":{"0":-3}}', "the offset -3 of t-0 is out of range"),
        ("startingOffsets", '{"t":{"-1":3}}', "partition -1 of topic t is out of range"),
        ("startingOffsets", '{"t":{}}', "it names no partition"),
        ("startingOffsets", '{"t":"newest"}', "'newest' of topic t is no offset"),
        ("startingOffsets", '{"t":{"0":9223372036854775808}}', "the offset 9223372036854775808 of t-0"),
        ("startingOffsetsByTimestamp", '{"t":"earliest"}', "'earliest' of topic t is no timestamp"),
        ("startingOffsetsByTimestamp", '{"t":{"0":-1}}', "the timestamp -1 of t-0 is out of range"),
        ("startingTimestamp", "-1", "it is less than 0"),
    ],
)
def test_a_place_that_cannot_be_used_is_refused(option, text, reason):
    error = refusal(stream, **{option.lower(): text})
    assert (error.option, reason in str(error)) == (option, True)


def test_an_end_in_time_is_not_before_a_start_in_time():
    error = refusal(batch, startingtimestamp="9", endingtimestamp="8")
    assert error.option == "endingTimestamp"
    assert str(error) == "option endingTimestamp is 8, which is before startingTimestamp (9); set a later end"
    batch(startingtimestamp="9", endingtimestamp="9")


# How much of it


def test_limits_are_read_as_spark_reads_them_and_ignored_in_a_batch_read():
    parsed = stream(maxoffsetspertrigger="10", minoffsetspertrigger="10", minpartitions="3", maxrecordsperpartition="4")
    assert (parsed.max_offsets_per_trigger, parsed.min_offsets_per_trigger) == (10, 10)
    assert (parsed.min_partitions, parsed.max_records_per_partition) == (3, 4)
    parsed = stream(failondataloss="False", includeheaders="TRUE")
    assert (parsed.fail_on_data_loss, parsed.include_headers) == (False, True)
    times = {"15min": 900_000, " 15M ": 900_000, "500ms": 500, "2h": 7_200_000, "1d": 86_400_000, "1500us": 1, "7": 7}
    for text, ms in times.items():
        assert stream(maxtriggerdelay=text).max_trigger_delay_ms == ms, text
    sizes = {"7": 7, "7b": 7, "64k": 65_536, " 3M ": 3 << 20, "10gb": 10 << 30, "1t": 1 << 40}
    for text, size in sizes.items():
        assert stream(maxbytespertrigger=text).max_bytes_per_trigger == size, text
    limits = "maxoffsetspertrigger maxoffsetspertriggerperpartition maxbytespertrigger minoffsetspertrigger"
    triggers = f"{limits} maxtriggerdelay maxrecordsondriver".split()
    with pytest.warns(IgnoredOptionWarning, match=f"which have no effect: {', '.join(triggers)}$"):
        batch(**dict.fromkeys(triggers, "x"))


@pytest.mark.parametrize(
    ("option", "text", "reason"),
    [
        ("maxOffsetsPerTrigger", "0", "it is less than 1"),
        ("maxOffsetsPerTrigger", "1e3", "it is not a whole number"),
        ("maxOffsetsPerTrigger", "9223372036854775808", "it is more than 9223372036854775807"),
        ("maxBytesPerTrigger", "0k", "it is less than 1"),
        ("maxBytesPerTrigger", "1.5g", "it is not a number with a unit"),
        ("maxBytesPerTrigger", "9223372036854775807k", "it is more than 9223372036854775807"),
        ("maxTriggerDelay", "15 m", "it is not a number with a unit"),
        ("maxTriggerDelay", "-5s", "it is less than 0"),
        ("minPartitions", "2147483648", "it is more than 2147483647"),
        ("failOnDataLoss", "yes", "it is not a known value; expected true or false"),
    ],
)
def test_limits_out_of_range_are_refused(option, text, reason):
    assert str(refusal(stream, **{option.lower(): text})).startswith(f"option {option} is {text!r}: {reason}")


# Groups


def test_a_group_is_needed_to_begin_at_its_offsets():
    assert stream(startingoffsets="group", **{"group.id": "g"}).starting == CommittedOffsets()
    said = "option startingOffsets=group needs the option group.id; set it too, or remove startingOffsets"
    assert str(refusal(stream, startingoffsets="group")) == said
