import pickle
import re
import warnings
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from pyspark_log.options import (
    Acks,
    Assign,
    Compression,
    Earliest,
    GlobalTimestamp,
    IgnoredOptionWarning,
    Latest,
    NoMatch,
    SinkOptions,
    SourceOptions,
    SpecificOffsets,
    Subscribe,
    SubscribePattern,
    Timestamps,
    check_source,
    parse_sink,
    parse_source,
)
from pyspark_log.options.foreign import IGNORED, REFUSED
from pyspark_log.options.given import names
from pyspark_log.options.option import SINK, SOURCE, Kind
from pyspark_log.options.page import page
from pyspark_log.options.table import TABLE
from pyspark_log_coordinator.cluster.machine import PARTITIONS_MAX
from pyspark_log_coordinator.model.batch import Acks as BatchAcks
from pyspark_log_storage.chunk import COMPRESSIONS
from pyspark_log_storage.errors import InvalidOption

READ = {"path": "/cluster", "subscribe": "t"}
WRITE = {"path": "/cluster"}


def stream(**more: str) -> SourceOptions:
    return parse_source(READ | more, streaming=True)


def batch(**more: str) -> SourceOptions:
    return parse_source(READ | more, streaming=False)


def write(more: dict[str, str] | None = None, *, streaming: bool = True) -> SinkOptions:
    return parse_sink(WRITE | (more or {}), streaming=streaming)


def refusal(parse, *args, **options) -> InvalidOption:
    with pytest.raises(InvalidOption) as caught:
        parse(*args, **options)
    return caught.value


@pytest.fixture(autouse=True)
def no_warning_unless_expected():
    with warnings.catch_warnings():
        warnings.simplefilter("error", IgnoredOptionWarning)
        yield


class TestDefaults:
    def test_of_a_streaming_read_are_kafkas(self):
        assert stream() == SourceOptions(
            path="/cluster",
            subscription=Subscribe(("t",)),
            starting=Latest(),
            starting_no_match=NoMatch.ERROR,
            ending=Latest(),
            fail_on_data_loss=True,
            max_offsets_per_trigger=None,
            min_offsets_per_trigger=None,
            max_trigger_delay_ms=15 * 60 * 1000,
            min_partitions=None,
            max_records_per_partition=None,
            include_headers=False,
            version_as_of=None,
            client_rack="",
        )

    def test_of_a_batch_read_are_from_earliest_to_latest(self):
        assert (batch().starting, batch().ending) == (Earliest(), Latest())

    @pytest.mark.parametrize("streaming", [True, False])
    def test_of_a_write(self, streaming):
        assert write(streaming=streaming) == SinkOptions(
            path="/cluster",
            topic=None,
            acks="all",
            compression=None,
            txn_app_id=None,
            txn_version=None,
            txn_take_over=False,
            retries=2147483647,
            retry_backoff_ms=100,
            delivery_timeout_ms=120_000,
            max_message_bytes=1_048_588,
            auto_create_topics=True,
            num_partitions=1,
            replication_factor=None,
            request_timeout_ms=30_000,
            session_timeout_ms=9_000,
        )


class TestNames:
    def test_are_found_in_any_case(self):
        assert stream(MAXOFFSETSPERTRIGGER="5").max_offsets_per_trigger == 5
        assert stream(maxoffsetspertrigger="5").max_offsets_per_trigger == 5
        assert write({"TXNAPPID": "a"}).txn_app_id == "a"

    def test_stand_in_messages_as_the_docs_spell_them(self):
        error = refusal(stream, maxoffsetspertrigger="x")
        assert error.option == "maxOffsetsPerTrigger"
        assert str(error) == (
            "option maxOffsetsPerTrigger is 'x': it is not a whole number. It takes a whole number,"
            " 1 or more;"
            " set it so, or leave it out (not set)"
        )

    def test_that_are_misspelt_are_refused_with_the_nearest_one_and_with_all(self):
        error = refusal(stream, maxoffsetpertrigger="5")
        assert error.option == "maxoffsetpertrigger"
        assert str(error).startswith(
            "there is no option maxoffsetpertrigger for a streaming read. Did you mean maxOffsetsPerTrigger?"
            " There are: path, subscribe, subscribePattern, assign, startingOffsets,"
        )

    def test_that_are_like_no_option_are_refused_without_a_guess(self):
        error = refusal(write, {"zzz": "5"})
        assert str(error).startswith("there is no option zzz for a streaming write. There are: path, topic, acks,")

    def test_that_are_unknown_are_refused_without_showing_the_value(self):
        assert "secret" not in str(refusal(stream, pasword="secret"))

    def test_of_a_write_are_refused_in_a_read_with_that_reason(self):
        error = refusal(stream, acks="all")
        assert str(error) == "option acks is for writes; a streaming read has none: leave it out"

    def test_of_a_read_are_refused_in_a_write_with_that_reason(self):
        error = refusal(write, {"startingoffsets": "latest"}, streaming=False)
        assert str(error) == "option startingOffsets is for reads; a batch write has none: leave it out"

    @pytest.mark.parametrize("key", ["checkpointlocation", "queryname", "outputmode"])
    def test_that_spark_passes_along_are_ignored_in_silence(self, key):
        write({key: "x"})
        stream(**{key: "x"})

    def test_of_several_paths_are_refused(self):
        error = refusal(stream, paths='["/a","/b"]')
        assert str(error) == (
            "option paths cannot be used: there is one cluster root; load one path, and choose topics with subscribe"
        )

    def test_of_a_catalog_table_are_refused_with_what_works(self):
        error = refusal(parse_source, {"option.path": "/cluster", "owner": "me", "provider": "p"}, streaming=False)
        assert str(error) == (
            "option option.path cannot be used: the options of a catalog table do not reach a Python"
            " data source;"
            " use a temporary view or spark.read"
        )

    def test_of_a_catalog_table_with_a_path_are_refused_likewise(self):
        error = refusal(parse_source, {"location": "/cluster", "subscribe": "t"}, streaming=False)
        assert str(error).startswith("option location cannot be used: the options of a catalog table do not reach")


class TestNotKnownYetWhetherBatchOrStream:
    """What is refused at `load()`, in words that fit both."""

    def test_a_misspelt_name_is_refused_for_a_read_with_the_options_of_both(self):
        error = refusal(check_source, READ | {"maxoffsetpertrigger": "5"})
        assert error.option == "maxoffsetpertrigger"
        assert str(error).startswith(
            "there is no option maxoffsetpertrigger for a read. Did you mean maxOffsetsPerTrigger? There are: path,"
        )
        there = str(error).split("There are: ")[1].split(", ")
        assert set(there) == set(names(Kind.SOURCE_STREAM)) | set(names(Kind.SOURCE_BATCH))
        assert len(there) == len(set(there))

    @pytest.mark.parametrize("other", ["endingoffsets", "versionasof", "maxoffsetspertrigger", "acks"])
    @pytest.mark.parametrize("first", [True, False])
    def test_a_misspelt_name_is_told_beside_an_option_of_one_of_them(self, other, first):
        given = [(other, "1"), ("zzz", "1")] if first else [("zzz", "1"), (other, "1")]
        said = str(refusal(check_source, READ | dict(given)))
        assert " for a read" in said or said == "option acks is for writes; a read has none: leave it out"
        assert "batch" not in said.split("There are: ", maxsplit=1)[0]
        assert "streaming" not in said

    def test_a_missing_path_is_refused_for_a_read(self):
        error = refusal(check_source, {"subscribe": "t"})
        assert str(error).startswith("option path is missing: a read needs it.")

    def test_an_option_of_a_write_is_refused(self):
        assert str(refusal(check_source, READ | {"acks": "all"})) == (
            "option acks is for writes; a read has none: leave it out"
        )

    def test_a_value_that_is_wrong_for_both_is_refused(self):
        error = refusal(check_source, READ | {"failondataloss": "x"})
        assert str(error).startswith("option failOnDataLoss is 'x': there is no such value.")

    def test_what_one_of_them_takes_passes(self):
        for more in ({"endingoffsets": "latest"}, {"versionasof": "1"}, {"startingoffsets": "latest"}):
            check_source(READ | more)

    def test_a_start_that_neither_takes_is_refused_with_the_defaults_of_both(self):
        said = str(refusal(check_source, READ | {"startingoffsets": "sooner"}))
        assert "option startingOffsets is 'sooner': it cannot be read as that" in said
        assert "or leave it out (a batch read then starts at earliest, a streaming one at latest)" in said

    @pytest.mark.parametrize(
        ("option", "text"),
        [
            ("maxOffsetsPerTrigger", "0"),
            ("minOffsetsPerTrigger", "x"),
            ("maxTriggerDelay", "15 m"),
            ("endingOffsets", "earliest"),
            ("versionAsOf", "-1"),
        ],
    )
    def test_a_value_is_refused_that_the_only_one_with_the_option_does_not_take(self, option, text):
        assert str(refusal(check_source, READ | {option.lower(): text})).startswith(f"option {option} is '{text}': ")

    def test_limits_that_contradict_each_other_are_refused(self):
        error = refusal(check_source, READ | {"minoffsetspertrigger": "5", "maxoffsetspertrigger": "2"})
        assert error.option == "minOffsetsPerTrigger"

    def test_an_end_before_the_start_is_refused(self):
        error = refusal(check_source, READ | {"startingtimestamp": "2", "endingtimestamp": "1"})
        assert str(error) == (
            "option endingTimestamp is 1, which is before startingTimestamp, 2; set an end that is not before the start"
        )

    def test_what_has_no_effect_is_not_told_twice(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_source(READ | {"kafka.bootstrap.servers": "x"})


class TestPath:
    def test_that_is_missing_is_refused_with_how_to_give_it(self):
        error = refusal(parse_source, {"subscribe": "t"}, streaming=True)
        assert error.option == "path"
        assert str(error) == (
            "option path is missing: a streaming read needs it. It takes a path or a file: URL, or"
            " several with commas between them. The cluster root, or journal nodes of the cluster, one or several of"
            " them; `.load(path)`, `.start(path)` and `.save(path)` set it too. It takes the place of"
            " `kafka.bootstrap.servers`: there is no broker, the address is a place in a store. Commas separate"
            " addresses, so a folder whose path has a comma cannot be used."
        )

    def test_is_returned_as_it_is(self):
        assert parse_sink({"path": " s3a://b/k/ "}, streaming=True).path == " s3a://b/k/ "

    def test_that_is_empty_is_refused(self):
        assert str(refusal(write, {"path": ""})) == (
            "option path is '': it is empty. It takes a path or a file: URL, or several with commas between them; set"
            " it so"
        )


class TestKafkaClientOptions:
    def test_that_are_known_here_mean_ours(self):
        parsed = write(
            {
                "kafka.acks": "1",
                "kafka.compression.type": "zstd",
                "kafka.retries": "3",
                "kafka.retry.backoff.ms": "7",
                "kafka.delivery.timeout.ms": "8",
                "kafka.max.request.size": "9",
            }
        )
        assert (parsed.acks, parsed.compression, parsed.retries) == ("1", "zstd", 3)
        assert (parsed.retry_backoff_ms, parsed.delivery_timeout_ms, parsed.max_message_bytes) == (7, 8, 9)

    def test_that_name_the_readers_rack_mean_ours(self):
        for name in ("client.rack", "kafka.client.rack", "Client.Rack"):
            assert stream(**{name: "east"}).client_rack == batch(**{name: "east"}).client_rack == "east"
        with pytest.warns(IgnoredOptionWarning, match=r"kafka\.client\.rack \(it has no meaning in a batch write\)"):
            parse_sink(WRITE | {"kafka.client.rack": "east"}, streaming=False)

    def test_beside_ours_with_the_same_value_are_welcome(self):
        assert write({"acks": "1", "kafka.acks": "1 "}).acks == "1"

    def test_beside_ours_with_another_value_are_refused(self):
        error = refusal(write, {"acks": "all", "kafka.acks": "1"})
        assert error.option == "acks"
        assert (
            str(error) == "options acks and kafka.acks mean the same and differ ('all' and '1'); leave one of them out"
        )

    def test_of_another_name_are_named_when_they_differ(self):
        error = refusal(write, {"max.message.bytes": "5", "kafka.max.request.size": "6"})
        assert str(error).startswith("options max.message.bytes and kafka.max.request.size mean the same and differ")

    def test_that_have_no_sense_here_are_named_in_one_warning_without_their_values(self):
        with pytest.warns(IgnoredOptionWarning) as caught:
            stream(
                **{
                    "kafka.bootstrap.servers": "host:9092",
                    "kafka.sasl.jaas.config": "secret",
                    "kafka.client.id": "c",
                    "kafkaconsumer.polltimeoutms": "5",
                    "kafka.group.id": "g",
                    "groupidprefix": "p",
                    "kafka.acks": "1",
                }
            )
        assert [str(one.message) for one in caught] == [
            (
                "ignored options of a streaming read: kafka.bootstrap.servers, kafka.client.id (there is"
                " no broker to"
                " connect to); kafka.sasl.jaas.config (the store's own credentials decide who may read"
                " and write);"
                " kafkaConsumer.pollTimeoutMs (they steer the pool of consumers in Spark's Kafka connector);"
                " kafka.group.id, groupIdPrefix (a query's progress is in its checkpoint, not in a"
                " consumer group);"
                " kafka.acks (it has no meaning in a streaming read)"
            )
        ]

    @pytest.mark.parametrize(
        "key",
        [
            "kafka.linger.ms",
            "kafka.batch.size",
            "kafka.fetch.min.bytes",
            "kafka.security.protocol",
            "kafka.ssl.x",
        ],
    )
    @pytest.mark.parametrize("parse", [parse_source, parse_sink])
    @pytest.mark.parametrize("streaming", [True, False])
    def test_are_ignored_on_both_sides(self, key, parse, streaming):
        with pytest.warns(IgnoredOptionWarning, match=key):
            parse((READ if parse is parse_source else WRITE) | {key: "x"}, streaming=streaming)

    @pytest.mark.parametrize("prefix", ["", "kafka."])
    @pytest.mark.parametrize(
        ("name", "advice"),
        [
            ("request.required.acks", "it was an option of Kafka's producer before 0.9; use acks"),
            ("replica.lag.max.messages", "Kafka removed it in 0.9 (KIP-16), because a burst of rows put healthy"),
            (
                "log.retention.hours",
                "it is a setting of Kafka's brokers; use the topic's retention.ms, in",
            ),
            ("log.cleaner.threads", "it is a setting of Kafka's brokers, and there are none; leave it out"),
            ("replica.lag.min.bytes.sent", "it is a setting of Kafka's brokers, and there are none; leave it out"),
        ],
    )
    def test_of_its_brokers_are_refused_with_what_takes_their_place(self, prefix, name, advice):
        for error in (refusal(write, {prefix + name: "1"}), refusal(stream, **{prefix + name: "1"})):
            assert str(error).startswith(f"option {prefix}{name} cannot be used: {advice}")

    def test_that_kafka_does_not_have_are_refused_with_the_nearest_one(self):
        error = refusal(stream, **{"kafka.bootstrap.server": "host:9092"})
        assert "there is no option kafka.bootstrap.server for" in str(error)
        assert "Did you mean kafka.bootstrap.servers?" in str(error)
        assert "Did you mean subscribe?" in str(refusal(stream, **{"kafka.subscribe": "t"}))
        assert "Did you mean kafka.compression.type?" in str(refusal(write, {"kafka.compresion.type": "lz4"}))
        assert "Did you mean topic?" in str(refusal(write, {"kafka.topic": "t"}))
        assert "Did you mean max.message.bytes?" in str(refusal(write, {"kafka.max.message.bytes": "1"}))

    @pytest.mark.parametrize("key", ["retention.ms", "min.insync.replicas", "kafka.retention.ms"])
    def test_of_topics_are_refused_with_where_to_set_them(self, key):
        assert str(refusal(write, {key: "1"})) == (
            f"option {key} is not for a streaming write: it is a setting of a topic; leave it out, and set it with"
            f" pyspark-log topics alter TOPIC --config {key.removeprefix('kafka.')}=VALUE"
        )

    @pytest.mark.parametrize(
        ("key", "advice"),
        [
            ("kafka.auto.offset.reset", "use startingOffsets"),
            ("kafka.enable.auto.commit", "Spark's checkpoint keeps the query's offsets"),
            ("kafka.key.deserializer", "decode them with DataFrame operations"),
            ("kafka.interceptor.classes", "Java classes do not run here"),
            ("group.id", "there are no consumer groups yet; leave it out"),
        ],
    )
    def test_that_would_change_a_read_are_refused(self, key, advice):
        error = refusal(stream, **{key: "x"})
        assert str(error).startswith(f"option {key} cannot be used: ")
        assert advice in str(error)

    @pytest.mark.parametrize(
        ("key", "advice"),
        [
            ("kafka.value.serializer", "encode them with DataFrame operations"),
            ("kafka.partitioner.class", "choose with a column `partition`"),
            ("kafka.interceptor.classes", "Java classes do not run here"),
        ],
    )
    def test_that_would_change_a_write_are_refused(self, key, advice):
        assert advice in str(refusal(write, {key: "x"}))

    def test_that_are_refused_on_the_other_side_are_ignored(self):
        with pytest.warns(IgnoredOptionWarning, match=r"kafka\.key\.serializer \(it has no meaning in a batch read\)"):
            batch(**{"kafka.key.serializer": "x"})


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
            "a read needs exactly one of the options subscribe, subscribePattern and assign, but"
            " none is given;"
            " set one of them"
        )

    def test_is_only_one(self):
        error = refusal(stream, assign='{"t":[0]}')
        assert error.option == "assign"
        assert "but subscribe and assign are given; set one of them" in str(error)

    @pytest.mark.parametrize(
        ("option", "text", "reason"),
        [
            ("subscribe", " , ", "it names no topic"),
            ("subscribe", "a,b/c", "only ASCII letters, digits, '.', '_' and '-' are allowed"),
            ("subscribePattern", "", "it is empty"),
            ("subscribePattern", "a(", "it is not a regular expression of Python's syntax"),
            ("subscribePattern", r"\p{Alpha}+", "it is not a regular expression of Python's syntax"),
            ("subscribePattern", "[a-z&&[^b]]", "it is not a regular expression of Python's syntax"),
            ("assign", "t", "it cannot be read as that"),
            ("assign", '{"t":0}', "it cannot be read as that"),
            ("assign", '{"t":[-1]}', "topic t cannot have a partition -1"),
            ("assign", '{"../t":[0]}', "only ASCII letters"),
            ("assign", "", "it assigns no partition, so there is nothing to read"),
            ("assign", " {} ", "it assigns no partition, so there is nothing to read"),
            ("assign", '{"t":[]}', "it assigns no partition, so there is nothing to read"),
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
            "option startingOffsets is 'latest': it means the latest offset, where a batch read"
            " would find nothing."
            " It takes earliest, or for each topic this or an offset for each partition,"
            ' such as {"t":{"0":23,"1":-2},"u":"earliest"}, where -2 is earliest;'
            " set it so, or leave it out (the default is earliest)"
        )
        error = refusal(batch, startingoffsets='{"t":{"0":1,"1":-1}}')
        assert "-1 of t-1 means the latest offset" in str(error)
        error = refusal(batch, startingoffsets='{"t":{"0":1},"u":"latest"}')
        assert "latest of topic u means the latest offset" in str(error)

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
        with pytest.warns(IgnoredOptionWarning, match=r"startingOffsets \(startingOffsetsByTimestamp goes before it"):
            assert stream(**given).starting == Timestamps({"t": {0: 1}})

    def test_that_finds_no_row_fails_or_is_the_latest_offset(self):
        assert stream(startingoffsetsbytimestampstrategy="LATEST").starting_no_match is NoMatch.LATEST
        assert str(refusal(stream, startingoffsetsbytimestampstrategy="earliest")) == (
            "option startingOffsetsByTimestampStrategy is 'earliest': there is no such value. It"
            " takes error or latest;"
            " set it so, or leave it out (the default is error)"
        )

    @pytest.mark.parametrize(
        ("option", "text", "reason"),
        [
            ("startingOffsets", "newest", "it cannot be read as that"),
            ("startingOffsets", '{"t":{"0":-3}}', "the offset -3 of t-0 is out of range"),
            ("startingOffsets", '{"t":{"-1":3}}', "topic t cannot have a partition -1"),
            ("startingOffsets", '{"t":{"0":1.5}}', "it cannot be read as that"),
            ("startingOffsets", '{"t":{}}', "it names no partition"),
            ("startingOffsets", '{"t":"newest"}', "'newest' of topic t is neither earliest nor latest"),
            ("startingOffsets", '{"t":-2}', "it cannot be read as that"),
            ("startingOffsets", '{"t":{"0":"earliest"}}', "it cannot be read as that"),
            ("startingOffsets", '{"t":"earliest","t":{"0":1}}', "it names topic t twice"),
            ("startingOffsetsByTimestamp", '{"t":"earliest"}', "it cannot be read as that"),
            ("startingOffsets", '{"t":{"0":9223372036854775808}}', "the offset 9223372036854775808 of t-0"),
            ("startingTimestamp", "yesterday", "it is not one number of milliseconds"),
            ("startingTimestamp", "-1", "it is not one number of milliseconds"),
            ("startingTimestamp", "9" * 30, "it is not one number of milliseconds"),
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
        assert "it means the earliest offset" in str(refusal(batch, endingoffsets="earliest"))
        assert "-2 of t-0 means the earliest offset" in str(refusal(batch, endingoffsets='{"t":{"0":-2}}'))
        assert "earliest of topic t means the earliest offset" in str(refusal(batch, endingoffsets='{"t":"earliest"}'))

    @pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
    def test_is_refused_in_a_stream(self, option):
        error = refusal(stream, **{option.lower(): "latest"})
        assert str(error) == (
            f"option {option} is not for a streaming read: a streaming read has no end; leave it out,"
            f" or read with"
            " spark.read"
        )

    def test_goes_by_kafkas_precedence(self):
        with pytest.warns(IgnoredOptionWarning, match=r"endingOffsets \(endingTimestamp goes before it\)"):
            assert batch(endingtimestamp="7", endingoffsets="latest").ending == GlobalTimestamp(7)

    def test_names_the_partitions_that_the_start_names(self):
        error = refusal(batch, startingoffsets='{"t":{"0":1,"1":1}}', endingoffsets='{"t":{"0":5}}')
        assert error.option == "endingOffsets"
        assert str(error) == (
            "options startingOffsets and endingOffsets must name the same partitions; only one of them names t-1"
        )

    def test_names_the_topics_that_the_start_names(self):
        batch(startingoffsets='{"t":"earliest","u":{"0":1}}', endingoffsets='{"t":{"0":5},"u":"latest"}')
        error = refusal(batch, startingoffsets='{"t":"earliest","u":{"0":1}}', endingoffsets='{"t":"latest"}')
        assert str(error) == (
            "options startingOffsets and endingOffsets must name the same topics; only one of them names u"
        )

    @pytest.mark.parametrize("start", [{"startingtimestamp": "9"}, {"startingoffsetsbytimestamp": '{"t":{"0":9}}'}])
    @pytest.mark.parametrize("end", [{"endingtimestamp": "8"}, {"endingoffsetsbytimestamp": '{"t":{"0":8}}'}])
    def test_of_time_is_not_before_a_start_of_time(self, start, end):
        error = refusal(batch, **start, **end)
        assert error.option.lower() in end
        assert re.search(r" is 8.*, which is before starting\w+, 9; set an end that is not before", str(error))
        batch(**start, **{name: text.replace("8", "9") for name, text in end.items()})

    def test_is_not_before_the_start(self):
        error = refusal(batch, startingoffsets='{"t":{"0":9}}', endingoffsets='{"t":{"0":5}}')
        assert str(error) == (
            "option endingOffsets is 5 for t-0, which is before startingOffsets, 9; set an end that"
            " is not before"
            " the start"
        )
        error = refusal(batch, startingoffsetsbytimestamp='{"t":{"0":9}}', endingoffsetsbytimestamp='{"t":{"0":5}}')
        assert "which is before startingOffsetsByTimestamp, 9" in str(error)

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
            "option minOffsetsPerTrigger is 11, which is more than maxOffsetsPerTrigger, 10; lower it, or raise that"
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
            ("maxTriggerDelay", "1.5m", "it is not a number with a unit"),
            ("maxTriggerDelay", "15 m", "it is not a number with a unit"),
            ("maxTriggerDelay", "1w", "it is not a number with a unit"),
            ("maxTriggerDelay", "-5s", "it is negative"),
            ("minPartitions", "0", "it is less than 1"),
            ("minPartitions", "2147483648", "it is more than 2147483647"),
            ("maxRecordsPerPartition", "0", "it is less than 1"),
            ("failOnDataLoss", "yes", "there is no such value. It takes true or false"),
            ("includeHeaders", "", "there is no such value. It takes true or false"),
        ],
    )
    def test_out_of_range_are_refused(self, option, text, reason):
        error = refusal(stream, **{option.lower(): text})
        assert error.option == option
        assert str(error).startswith(f"option {option} is {text!r}: {reason}")


class TestSink:
    def test_options_are_read(self):
        parsed = write(
            {
                "topic": " t ",
                "compression.type": "NONE",
                "auto.create.topics.enable": "false",
                "num.partitions": "8",
                "max.message.bytes": "1",
                "txnappid": "etl",
                "txntakeover": "true",
            }
        )
        assert (parsed.topic, parsed.compression, parsed.auto_create_topics) == ("t", "none", False)
        assert (parsed.num_partitions, parsed.max_message_bytes) == (8, 1)
        assert (parsed.txn_app_id, parsed.txn_version, parsed.txn_take_over) == ("etl", None, True)

    @pytest.mark.parametrize(("text", "acks"), [("all", "all"), ("-1", "all"), ("1", "1"), ("0", "0")])
    def test_acks_are_kafkas(self, text, acks):
        assert write({"acks": text}).acks == acks

    @pytest.mark.parametrize("codec", ["snappy", "GZIP "])
    def test_moves_with_a_codec_of_kafkas_producer_and_says_that_it_has_no_effect(self, codec):
        match = rf"kafka\.compression\.type \(it is {codec.strip()}, which only Kafka's clients know\)"
        with pytest.warns(IgnoredOptionWarning, match=match):
            assert write({"kafka.compression.type": codec}).compression is None

    @pytest.mark.parametrize("codec", ["snappy", "gzip"])
    def test_codecs_that_arrow_lacks_are_refused_with_those_that_there_are(self, codec):
        assert str(refusal(write, {"compression.type": codec})) == (
            f"option compression.type is {codec!r}: chunks are Arrow data, and Arrow has no such"
            f" codec. It takes none,"
            " lz4 or zstd; set it so, or leave it out (the topic's, which is lz4 unless set)"
        )

    def test_codecs_and_acks_are_those_of_the_layers_below(self):
        assert get_args(Compression) == COMPRESSIONS
        assert get_args(Acks) == get_args(BatchAcks)

    def test_headers_are_tolerated_as_by_kafkas_sink(self):
        write({"includeheaders": "true"})

    def test_async_progress_is_refused_with_the_reason(self):
        error = refusal(write, {"asyncprogresstrackingenabled": "true"})
        assert error.option == "asyncProgressTrackingEnabled"
        assert "Spark would then store offsets after the rows were written, so exactly-once would not hold" in str(
            error
        )
        assert "exactly-once would not hold" in str(refusal(stream, asyncprogresstrackingenabled="true"))
        write({"asyncprogresstrackingenabled": "false", "asyncprogresstrackingcheckpointintervalms": "5"})

    @pytest.mark.parametrize(
        ("option", "text", "reason"),
        [
            ("topic", "", "a topic name cannot be empty"),
            ("topic", "a/b", "only ASCII letters"),
            ("acks", "2", "there is no such value. It takes all, -1, 1 or 0"),
            ("compression.type", "lzo", "there is no such value. It takes none, lz4 or zstd"),
            ("retries", "-1", "it is less than 0"),
            ("retry.backoff.ms", "soon", "it is not a whole number"),
            ("delivery.timeout.ms", "0", "it is less than 1"),
            ("max.message.bytes", "2147483648", "it is more than 2147483647"),
            ("num.partitions", "0", "it is less than 1"),
            ("num.partitions", str(PARTITIONS_MAX + 1), "it is more than 100000"),
            ("auto.create.topics.enable", "1", "there is no such value. It takes true or false"),
            ("txnAppId", "", "it is empty"),
            ("txnAppId", "x" * 256, "it has 256 characters"),
        ],
    )
    def test_values_out_of_range_are_refused(self, option, text, reason):
        error = refusal(write, {option.lower(): text})
        assert error.option == option
        assert reason in str(error)


class TestTransaction:
    def test_of_a_batch_write_has_both_parts(self):
        parsed = write({"txnappid": "etl", "txnversion": "7"}, streaming=False)
        assert (parsed.txn_app_id, parsed.txn_version) == ("etl", 7)

    def test_of_a_batch_write_without_a_part_is_refused(self):
        error = refusal(write, {"txnappid": "etl"}, streaming=False)
        assert error.option == "txnVersion"
        assert str(error) == (
            "option txnAppId is given without txnVersion: a batch write is idempotent by both; set"
            " txnVersion, or"
            " leave txnAppId out"
        )
        error = refusal(write, {"txnversion": "7"}, streaming=False)
        assert error.option == "txnAppId"
        assert "set txnAppId, or leave txnVersion out" in str(error)

    def test_of_a_stream_is_numbered_by_its_batches(self):
        error = refusal(write, {"txnappid": "etl", "txnversion": "7"})
        assert str(error) == (
            "option txnVersion is not for a streaming write: the number of the micro-batch is used; leave it out"
        )

    def test_is_taken_over_by_name_only(self):
        error = refusal(write, {"txntakeover": "true"})
        assert str(error) == (
            "option txnTakeOver is true, but no txnAppId says what to take over; set txnAppId, or leave it out"
        )


class TestParsedOptions:
    @pytest.mark.parametrize("parsed", [stream(), batch(startingoffsets='{"t":{"0":1}}'), write()])
    def test_survive_pickle_and_are_frozen(self, parsed):
        assert pickle.loads(pickle.dumps(parsed)) == parsed
        with pytest.raises(AttributeError):
            parsed.path = "elsewhere"

    def test_survive_json(self):
        parsed = batch(startingoffsets='{"t":{"0":1}}', endingtimestamp="5")
        assert msgspec.json.decode(msgspec.json.encode(parsed), type=SourceOptions) == parsed


class TestTable:
    @pytest.mark.parametrize("kind", list(Kind))
    def test_has_each_name_once_for_a_kind(self, kind):
        names = [option.name.lower() for option in TABLE if kind in option.kinds]
        assert len(names) == len(set(names))

    @pytest.mark.parametrize("option", TABLE, ids=lambda option: option.name)
    def test_default_is_a_value_that_the_option_takes(self, option):
        if option.default is not None:
            option.value.read(option.default)

    @pytest.mark.parametrize("option", TABLE, ids=lambda option: option.name)
    def test_says_why_an_option_is_not_for_the_other_kind_of_query(self, option):
        side = SOURCE if option.kinds <= SOURCE else SINK
        elsewhere = {kind for each in TABLE if each.name == option.name for kind in each.kinds}
        assert option.not_here or elsewhere >= side

    def test_overlaps_with_no_name_that_is_ignored_or_refused(self):
        for option in TABLE:
            for foreign in (*IGNORED, *REFUSED):
                for name in (option.name, *(f"kafka.{client}" for client in option.prefixed)):
                    assert not (option.kinds & foreign.kinds and foreign.covers(name.lower())), name

    def test_is_what_the_docs_say(self):
        committed = Path(__file__).parents[3] / "docs" / "options.md"
        assert committed.read_text() == page(), "run: python -m pyspark_log.options.page > docs/options.md"
