"""The options of a source: subscription, start, end and limits."""

import re

import pytest

from pyspark_log.options import (
    Assign,
    CommittedOffsets,
    Earliest,
    GlobalTimestamp,
    IgnoredOptionWarning,
    Latest,
    NoMatch,
    SpecificOffsets,
    Subscribe,
    SubscribePattern,
    Timestamps,
    parse_source,
)
from tests.support.pyspark_log.parsed_options import batch, refusal, stream


def test_values_may_be_numbers_and_booleans_as_in_sparks_option():
    given = {
        "minPartitions": 8,
        "failOnDataLoss": False,
        "startingTimestamp": 5_000,
        "maxRecordsPerPartition": None,
    }
    parsed = parse_source({"path": "/r", "subscribe": "t", **given}, streaming=False)
    assert (parsed.min_partitions, parsed.fail_on_data_loss) == (8, False)
    assert (parsed.starting, parsed.max_records_per_partition) == (GlobalTimestamp(5_000), None)


class TestSubscription:
    def test_is_a_list_without_blanks_and_doubles(self):
        assert stream(subscribe=" b, a,,b ").subscription == Subscribe(("b", "a"))

    def test_is_a_pattern_that_matches_whole_names(self):
        pattern = parse_source({"path": "/r", "subscribepattern": "to.*c|x"}, streaming=True).subscription
        assert pattern == SubscribePattern("to.*c|x")
        assert [name for name in ("topic", "topics", "atopic", "x", "xy") if pattern.matches(name)] == [
            "topic",
            "x",
        ]

    def test_is_partitions_in_order(self):
        parsed = parse_source({"path": "/r", "assign": '{"t":[1,0,1],"u":[]}'}, streaming=True)
        assert parsed.subscription == Assign({"t": (0, 1)})

    def test_is_required(self):
        error = refusal(parse_source, {"path": "/r"}, streaming=False)
        assert str(error) == (
            "set exactly one of the options subscribe, subscribePattern and assign; found none of them"
        )

    def test_is_only_one(self):
        error = refusal(stream, assign='{"t":[0]}')
        assert error.option == "assign"
        assert "; found subscribe and assign" in str(error)

    @pytest.mark.parametrize(
        ("option", "text", "reason"),
        [
            ("subscribe", " , ", "it names no topic"),
            ("subscribe", "a,b/c", "only ASCII letters, digits, '.', '_' and '-' are allowed"),
            ("subscribePattern", "", "it is empty"),
            ("subscribePattern", "a(", "it is not a valid Python regular expression"),
            ("subscribePattern", r"\p{Alpha}+", "it is not a valid Python regular expression"),
            ("subscribePattern", "[a-z&&[^b]]", "it is not a valid Python regular expression"),
            ("assign", "t", "it cannot be parsed"),
            ("assign", '{"t":0}', "it cannot be parsed"),
            ("assign", '{"t":[-1]}', "partition -1 of topic t is out of range"),
            ("assign", '{"../t":[0]}', "only ASCII letters"),
            ("assign", "", "it assigns no partition"),
            ("assign", '{"t":[0],"t":[1]}', "it names t twice"),
            ("assign", " {} ", "it assigns no partition"),
            ("assign", '{"t":[]}', "it assigns no partition"),
        ],
    )
    def test_that_cannot_be_used_is_refused(self, option, text, reason):
        error = refusal(parse_source, {"path": "/r", option.lower(): text}, streaming=True)
        assert error.option == option
        assert str(error).startswith(f"option {option} is ")
        assert reason in str(error)


class TestStart:
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
    def test_of_a_stream_is_a_word_or_offsets(self, text, position):
        assert stream(startingoffsets=text).starting == position

    def test_of_a_batch_read_is_never_the_latest_offset(self):
        error = refusal(batch, startingoffsets="latest")
        assert str(error) == (
            "option startingOffsets is 'latest': a batch read cannot start at the latest offset (-1); expected"
            ' earliest, or JSON with an offset for each partition, such as {"t":{"0":23,"1":-2},"u":"earliest"}, where'
            " -2 is earliest (default: earliest)"
        )
        error = refusal(batch, startingoffsets='{"t":{"0":1,"1":-1}}')
        assert "t-1 has -1, and a batch read cannot start at the latest offset" in str(error)
        error = refusal(batch, startingoffsets='{"t":{"0":1},"u":"latest"}')
        assert "topic u has latest, and a batch read cannot start at the latest offset" in str(error)

    def test_is_by_a_timestamp_for_all_or_for_each_partition(self):
        assert stream(startingtimestamp="1000").starting == GlobalTimestamp(1000)
        assert batch(startingoffsetsbytimestamp='{"t":{"0":1000}}').starting == Timestamps({"t": {0: 1000}})

    def test_goes_by_kafkas_precedence_and_says_what_is_not_used(self):
        given = {
            "startingoffsets": "no position at all",
            "startingoffsetsbytimestamp": '{"t":{"0":1}}',
            "startingtimestamp": "2",
        }
        with pytest.warns(
            IgnoredOptionWarning, match=r"startingOffsetsByTimestamp, startingOffsets \(startingTimestamp"
        ):
            assert stream(**given).starting == GlobalTimestamp(2)
        del given["startingtimestamp"]
        with pytest.warns(IgnoredOptionWarning, match=r"startingOffsets \(startingOffsetsByTimestamp takes precedence"):
            assert stream(**given).starting == Timestamps({"t": {0: 1}})

    def test_that_finds_no_row_fails_or_is_the_latest_offset(self):
        assert stream(startingoffsetsbytimestampstrategy="LATEST").starting_no_match is NoMatch.LATEST
        assert str(refusal(stream, startingoffsetsbytimestampstrategy="earliest")) == (
            "option startingOffsetsByTimestampStrategy is 'earliest': it is not a known value; expected error or latest"
            " (default: error)"
        )

    @pytest.mark.parametrize(
        ("option", "text", "reason"),
        [
            ("startingOffsets", "newest", "it cannot be parsed"),
            ("startingOffsets", '{"t":{"0":-3}}', "the offset -3 of t-0 is out of range"),
            ("startingOffsets", '{"t":{"-1":3}}', "partition -1 of topic t is out of range"),
            ("startingOffsets", '{"t":{"0":1.5}}', "it cannot be parsed"),
            ("startingOffsets", '{"t":{}}', "it names no partition"),
            ("startingOffsets", '{"t":"newest"}', "'newest' of topic t is neither earliest nor latest"),
            ("startingOffsets", '{"t":-2}', "it cannot be parsed"),
            ("startingOffsets", '{"t":{"0":"earliest"}}', "it cannot be parsed"),
            ("startingOffsets", '{"t":"earliest","t":{"0":1}}', "it names t twice"),
            ("startingOffsets", '{"t":{"0":1,"0":2}}', "it names 0 twice"),
            ("startingOffsets", '{"t":{"0":1,"-0":2}}', "it names a partition of t twice"),
            ("startingOffsetsByTimestamp", '{"t":{"1":1,"1.0":2}}', "it names a partition of t twice"),
            ("startingOffsetsByTimestamp", '{"t":{"0":1},"t":{"1":2}}', "it names t twice"),
            ("startingOffsetsByTimestamp", '{"t":"earliest"}', "it cannot be parsed"),
            ("startingOffsets", '{"t":{"0":9223372036854775808}}', "the offset 9223372036854775808 of t-0"),
            ("startingTimestamp", "yesterday", "it is not a number of milliseconds"),
            ("startingTimestamp", "-1", "it is not a number of milliseconds"),
            ("startingTimestamp", "9" * 30, "it is not a number of milliseconds"),
            ("startingOffsetsByTimestamp", '{"t":{"0":-1}}', "the timestamp -1 of t-0 is out of range"),
        ],
    )
    def test_that_cannot_be_used_is_refused(self, option, text, reason):
        error = refusal(stream, **{option.lower(): text})
        assert error.option == option
        assert reason in str(error)


class TestEnd:
    def test_of_a_batch_read_is_a_word_offsets_or_timestamps(self):
        assert batch(endingoffsets="latest").ending == Latest()
        assert batch(endingoffsets='{"t":{"0":5,"1":-1}}').ending == SpecificOffsets({"t": {0: 5, 1: -1}})
        assert batch(endingtimestamp="7").ending == GlobalTimestamp(7)
        assert batch(endingoffsets='{"t":"latest"}').ending == SpecificOffsets({}, {"t": -1})
        assert batch(endingoffsetsbytimestamp='{"t":{"0":7}}').ending == Timestamps({"t": {0: 7}})

    def test_is_never_the_earliest_offset(self):
        assert "a batch read cannot end at the earliest offset" in str(refusal(batch, endingoffsets="earliest"))
        assert "t-0 has -2, and a batch read cannot end" in str(refusal(batch, endingoffsets='{"t":{"0":-2}}'))
        assert "topic t has earliest, and a batch read cannot" in str(refusal(batch, endingoffsets='{"t":"earliest"}'))

    @pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
    def test_is_refused_in_a_stream(self, option):
        error = refusal(stream, **{option.lower(): "latest"})
        assert str(error) == (
            f"option {option} cannot be used in a streaming read: a stream has no end; remove it, or use spark.read"
        )

    def test_goes_by_kafkas_precedence(self):
        with pytest.warns(IgnoredOptionWarning, match=r"endingOffsets \(endingTimestamp takes precedence\)"):
            assert batch(endingtimestamp="7", endingoffsets="latest").ending == GlobalTimestamp(7)

    def test_names_the_partitions_that_the_start_names(self):
        error = refusal(batch, startingoffsets='{"t":{"0":1,"1":1}}', endingoffsets='{"t":{"0":5}}')
        assert error.option == "endingOffsets"
        assert str(error) == (
            "options startingOffsets and endingOffsets must name the same partitions, but only one names t-1"
        )

    def test_names_the_topics_that_the_start_names(self):
        batch(startingoffsets='{"t":"earliest","u":{"0":1}}', endingoffsets='{"t":{"0":5},"u":"latest"}')
        error = refusal(batch, startingoffsets='{"t":"earliest","u":{"0":1}}', endingoffsets='{"t":"latest"}')
        assert str(error) == (
            "options startingOffsets and endingOffsets must name the same topics, but only one names u"
        )

    @pytest.mark.parametrize("start", [{"startingtimestamp": "9"}, {"startingoffsetsbytimestamp": '{"t":{"0":9}}'}])
    @pytest.mark.parametrize("end", [{"endingtimestamp": "8"}, {"endingoffsetsbytimestamp": '{"t":{"0":8}}'}])
    def test_of_time_is_not_before_a_start_of_time(self, start, end):
        error = refusal(batch, **start, **end)
        assert error.option.lower() in end
        assert re.search(r" is 8.*, which is before starting\w+ \(9\); set a later end", str(error))
        batch(**start, **{name: text.replace("8", "9") for name, text in end.items()})

    def test_is_not_before_the_start(self):
        error = refusal(batch, startingoffsets='{"t":{"0":9}}', endingoffsets='{"t":{"0":5}}')
        assert str(error) == ("option endingOffsets is 5 for t-0, which is before startingOffsets (9); set a later end")
        error = refusal(batch, startingoffsetsbytimestamp='{"t":{"0":9}}', endingoffsetsbytimestamp='{"t":{"0":5}}')
        assert "which is before startingOffsetsByTimestamp (9)" in str(error)

    def test_is_compared_only_where_both_are_known(self):
        batch(startingoffsets='{"t":{"0":9,"1":-2}}', endingoffsets='{"t":{"0":-1,"1":0}}')
        batch(startingtimestamp="9", endingoffsets='{"t":{"0":5}}')


class TestLimits:
    def test_are_read(self):
        parsed = stream(
            maxoffsetspertrigger="10",
            minoffsetspertrigger="10",
            minpartitions="3",
            maxrecordsperpartition="4",
            failondataloss="False",
            includeheaders="TRUE",
        )
        assert (parsed.max_offsets_per_trigger, parsed.min_offsets_per_trigger) == (10, 10)
        assert (parsed.min_partitions, parsed.max_records_per_partition) == (3, 4)
        assert (parsed.fail_on_data_loss, parsed.include_headers) == (False, True)

    def test_whose_minimum_is_above_the_maximum_are_refused(self):
        error = refusal(stream, maxoffsetspertrigger="10", minoffsetspertrigger="11")
        assert error.option == "minOffsetsPerTrigger"
        assert str(error) == (
            "option minOffsetsPerTrigger is 11, which is more than maxOffsetsPerTrigger (10); decrease it, or increase"
            " maxOffsetsPerTrigger"
        )

    @pytest.mark.parametrize(
        ("text", "ms"),
        [
            ("15m", 900_000),
            ("15min", 900_000),
            (" 15M ", 900_000),
            ("10s", 10_000),
            ("500ms", 500),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("7", 7),
            ("1500us", 1),
            ("0", 0),
        ],
    )
    def test_of_time_are_what_spark_makes_of_the_text(self, text, ms):
        assert stream(maxtriggerdelay=text).max_trigger_delay_ms == ms

    @pytest.mark.parametrize(
        ("text", "size"), [("7", 7), ("7b", 7), ("64k", 65_536), (" 3M ", 3 << 20), ("10gb", 10 << 30), ("1t", 1 << 40)]
    )
    def test_of_size_are_what_spark_makes_of_the_text(self, text, size):
        assert stream(maxbytespertrigger=text).max_bytes_per_trigger == size

    def test_of_triggers_are_ignored_in_a_batch_read_with_a_warning(self):
        with pytest.warns(IgnoredOptionWarning) as caught:
            batch(maxoffsetspertrigger="x", minoffsetspertrigger="5", maxtriggerdelay="1m")
        assert [str(one.message) for one in caught] == [
            (
                "ignored options of a batch read: maxOffsetsPerTrigger, minOffsetsPerTrigger, maxTriggerDelay"
                " (a batch read has no triggers)"
            )
        ]

    @pytest.mark.parametrize(
        ("option", "text", "reason"),
        [
            ("maxOffsetsPerTrigger", "0", "it is less than 1"),
            ("maxOffsetsPerTrigger", "1e3", "it is not a whole number"),
            ("maxOffsetsPerTrigger", "9223372036854775808", "it is more than 9223372036854775807"),
            ("minOffsetsPerTrigger", "-1", "it is less than 0"),
            ("maxOffsetsPerTriggerPerPartition", "0", "it is less than 1"),
            ("maxBytesPerTrigger", "0k", "it is less than 1"),
            ("maxBytesPerTrigger", "1.5g", "it is not a number with a unit"),
            ("maxBytesPerTrigger", "-1", "it is not a number with a unit"),
            ("maxBytesPerTrigger", "9223372036854775807k", "it is more than 9223372036854775807 bytes"),
            ("maxTriggerDelay", "1.5m", "it is not a number with a unit"),
            ("maxTriggerDelay", "15 m", "it is not a number with a unit"),
            ("maxTriggerDelay", "1w", "it is not a number with a unit"),
            ("maxTriggerDelay", "-5s", "it is negative"),
            ("minPartitions", "0", "it is less than 1"),
            ("minPartitions", "2147483648", "it is more than 2147483647"),
            ("maxRecordsPerPartition", "0", "it is less than 1"),
            ("failOnDataLoss", "yes", "it is not a known value; expected true or false"),
            ("includeHeaders", "", "it is not a known value; expected true or false"),
        ],
    )
    def test_out_of_range_are_refused(self, option, text, reason):
        error = refusal(stream, **{option.lower(): text})
        assert error.option == option
        assert str(error).startswith(f"option {option} is {text!r}: {reason}")


SHARED = {"group.id": "g", "group.protocol": "cooperative", "group.instance.id": "q"}


class TestGroup:
    def test_is_needed_for_a_start_at_its_offsets(self):
        assert stream(startingoffsets="group", **{"group.id": "g"}).starting == CommittedOffsets()
        error = refusal(stream, startingoffsets="group")
        assert error.option == "group.id"
        assert "startingOffsets=group needs the group; set the option group.id" in str(error)

    def test_has_members_with_names_that_they_keep(self):
        membership = stream(**SHARED).membership
        assert (membership.instance_id, membership.session_timeout_ms) == ("q", 1_800_000)
        without = {name: text for name, text in SHARED.items() if name != "group.instance.id"}
        assert refusal(stream, **without).option == "group.instance.id"
        assert refusal(stream, **{"group.protocol": "cooperative", "group.instance.id": "q"}).option == "group.protocol"

    def test_chooses_the_partitions_of_its_members(self):
        error = refusal(parse_source, {"path": "/r", "assign": '{"t":[0]}'} | SHARED, streaming=True)
        assert error.option == "assign"
        assert "with group.protocol=cooperative the group does" in str(error)

    def test_gets_a_heartbeat_of_each_member_before_it_removes_it(self):
        stream(**SHARED, **{"session.timeout.ms": "10000", "heartbeat.interval.ms": "9999"})
        error = refusal(stream, **SHARED, **{"session.timeout.ms": "10000", "heartbeat.interval.ms": "10000"})
        assert error.option == "heartbeat.interval.ms"
        assert refusal(stream, **SHARED, **{"session.timeout.ms": "3000"}).option == "heartbeat.interval.ms"

    @pytest.mark.parametrize(
        ("option", "text"),
        [
            ("group.instance.id", "q"),
            ("session.timeout.ms", "10000"),
            ("heartbeat.interval.ms", "100"),
            ("group.keep.partitions", "true"),
        ],
    )
    def test_has_no_member_without_group_protocol(self, option, text):
        error = refusal(stream, **{"group.id": "g", option: text})
        assert error.option == option
        assert "is for queries that share their topics; set group.protocol=cooperative too" in str(error)
