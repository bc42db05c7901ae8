"""The names and defaults of options, the path, and a read that is not known yet to be a batch or a stream."""

import warnings

import pytest

from pyspark_log.options import (
    Earliest,
    Latest,
    NoMatch,
    Subscribe,
    check_source,
    parse_sink,
    parse_source,
)
from pyspark_log.options.given import names
from pyspark_log.options.option import Kind
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_storage.stores.storage_options import NO_OPTIONS
from tests.support.pyspark_log.parsed_options import READ, batch, refusal, stream, write


class TestDefaults:
    def test_of_a_streaming_read_are_kafkas(self):
        assert vars(stream()) == {
            "path": "/cluster",
            "subscription": Subscribe(("t",)),
            "starting": Latest(),
            "starting_no_match": NoMatch.ERROR,
            "ending": Latest(),
            "fail_on_data_loss": True,
            "max_offsets_per_trigger": None,
            "max_offsets_per_trigger_per_partition": None,
            "max_bytes_per_trigger": None,
            "min_offsets_per_trigger": None,
            "max_trigger_delay_ms": 15 * 60 * 1000,
            "min_partitions": None,
            "max_records_per_partition": None,
            "include_headers": False,
            "version_as_of": None,
            "topic_ids": {},
            "compactions": {},
            "group_id": "",
            "membership": None,
            "client_rack": "",
            "native_s3": False,
            "longest_pause": None,
            "storage_options": NO_OPTIONS,
            "async_progress": False,
        }

    def test_of_a_batch_read_are_from_earliest_to_latest(self):
        assert (batch().starting, batch().ending) == (Earliest(), Latest())

    @pytest.mark.parametrize("streaming", [True, False])
    def test_of_a_write(self, streaming):
        assert vars(write(streaming=streaming)) == {
            "path": "/cluster",
            "topic": None,
            "acks": "all",
            "compression": None,
            "txn_app_id": None,
            "txn_version": None,
            "txn_take_over": False,
            "checkpoint": None,
            "retry": RetryPolicy(
                retries=2147483647, retry_backoff_ms=100, delivery_timeout_ms=120_000, session_timeout_ms=9_000
            ),
            "max_message_bytes": 1_048_588,
            "dead_letter_topic": None,
            "auto_create_topics": True,
            "num_partitions": 1,
            "replication_factor": None,
            "request_timeout_ms": 30_000,
            "retries": 2147483647,
            "retry_backoff_ms": 100,
            "delivery_timeout_ms": 120_000,
            "broker_session_timeout_ms": 9_000,
            "has_columns": False,
            "merge_schema": False,
            "key_column": None,
            "storage_options": NO_OPTIONS,
            "async_progress": False,
        }


class TestNames:
    def test_are_found_in_any_case(self):
        assert stream(MAXOFFSETSPERTRIGGER="5").max_offsets_per_trigger == 5
        assert stream(maxoffsetspertrigger="5").max_offsets_per_trigger == 5
        assert write({"TXNAPPID": "a"}).txn_app_id == "a"

    def test_stand_in_messages_as_the_docs_spell_them(self):
        error = refusal(stream, maxoffsetspertrigger="x")
        assert error.option == "maxOffsetsPerTrigger"
        assert str(error) == (
            "option maxOffsetsPerTrigger is 'x': it is not a whole number; expected a whole number, 1 or more"
            " (default: not set)"
        )

    def test_that_are_misspelt_are_refused_with_the_nearest_one_and_with_all(self):
        error = refusal(stream, maxoffsetpertrigger="5")
        assert error.option == "maxoffsetpertrigger"
        assert str(error).startswith(
            "unknown option maxoffsetpertrigger for a streaming read. Did you mean maxOffsetsPerTrigger?"
            " Available options: path, subscribe, subscribePattern, assign, startingOffsets,"
        )

    def test_that_are_like_no_option_are_refused_without_a_guess(self):
        error = refusal(write, {"zzz": "5"})
        assert str(error).startswith("unknown option zzz for a streaming write. Available options: path, topic, acks,")

    def test_that_are_unknown_are_refused_without_showing_the_value(self):
        assert "secret" not in str(refusal(stream, pasword="secret"))

    def test_of_a_write_are_refused_in_a_read_with_that_reason(self):
        error = refusal(stream, acks="all")
        assert str(error) == "option acks is for writes and cannot be used in a streaming read; remove it"

    def test_of_a_read_are_refused_in_a_write_with_that_reason(self):
        error = refusal(write, {"startingoffsets": "latest"}, streaming=False)
        assert str(error) == "option startingOffsets is for reads and cannot be used in a batch write; remove it"

    @pytest.mark.parametrize("key", ["checkpointlocation", "queryname", "outputmode"])
    def test_that_spark_passes_along_are_ignored_in_silence(self, key):
        write({key: "x"})
        stream(**{key: "x"})

    def test_of_several_paths_are_refused(self):
        error = refusal(stream, paths='["/a","/b"]')
        assert str(error) == (
            "option paths cannot be used: a cluster has one address; load one path, and select topics with subscribe"
        )

    def test_of_a_catalog_table_are_refused_with_what_works(self):
        error = refusal(parse_source, {"option.path": "/cluster", "owner": "me", "provider": "p"}, streaming=False)
        assert str(error) == (
            "option option.path cannot be used: a Python data source does not get the options of a catalog table;"
            " create it without them, and give them with each statement: FROM events WITH (path='...',"
            " subscribe='...'). Or use a temporary view or spark.read"
        )

    def test_of_a_catalog_table_with_a_path_are_refused_likewise(self):
        error = refusal(parse_source, {"location": "/cluster", "subscribe": "t"}, streaming=False)
        assert str(error).startswith("option location cannot be used: a Python data source does not get the options")


class TestNotKnownYetWhetherBatchOrStream:
    """What is refused at `load()`, in words that fit both."""

    def test_a_misspelt_name_is_refused_for_a_read_with_the_options_of_both(self):
        error = refusal(check_source, READ | {"maxoffsetpertrigger": "5"})
        assert error.option == "maxoffsetpertrigger"
        assert str(error).startswith(
            "unknown option maxoffsetpertrigger for a read. Did you mean maxOffsetsPerTrigger? Available options: path,"
        )
        there = str(error).split("Available options: ")[1].split(", ")
        assert set(there) == set(names(Kind.SOURCE_STREAM)) | set(names(Kind.SOURCE_BATCH))
        assert len(there) == len(set(there))

    @pytest.mark.parametrize("other", ["endingoffsets", "versionasof", "maxoffsetspertrigger", "acks"])
    @pytest.mark.parametrize("first", [True, False])
    def test_a_misspelt_name_is_told_beside_an_option_of_one_of_them(self, other, first):
        given = [(other, "1"), ("zzz", "1")] if first else [("zzz", "1"), (other, "1")]
        said = str(refusal(check_source, READ | dict(given)))
        assert " for a read" in said or said == "option acks is for writes and cannot be used in a read; remove it"
        assert "batch" not in said.split("Available options: ", maxsplit=1)[0]
        assert "streaming" not in said

    def test_a_missing_path_is_refused_for_a_read(self):
        error = refusal(check_source, {"subscribe": "t"})
        assert str(error).startswith("option path is required for a read; expected a path")

    def test_an_option_of_a_write_is_refused(self):
        assert str(refusal(check_source, READ | {"acks": "all"})) == (
            "option acks is for writes and cannot be used in a read; remove it"
        )

    def test_a_value_that_is_wrong_for_both_is_refused(self):
        error = refusal(check_source, READ | {"failondataloss": "x"})
        assert str(error).startswith("option failOnDataLoss is 'x': it is not a known value;")

    def test_what_one_of_them_takes_passes(self):
        for more in ({"endingoffsets": "latest"}, {"versionasof": "1"}, {"startingoffsets": "latest"}):
            check_source(READ | more)

    def test_a_start_that_neither_takes_is_refused_with_the_defaults_of_both(self):
        said = str(refusal(check_source, READ | {"startingoffsets": "sooner"}))
        assert "option startingOffsets is 'sooner': it cannot be parsed" in said
        assert "(default: earliest for a batch read, latest for a streaming read)" in said

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
        assert str(error) == ("option endingTimestamp is 1, which is before startingTimestamp (2); set a later end")

    def test_what_has_no_effect_is_not_told_twice(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_source(READ | {"kafka.bootstrap.servers": "x"})


class TestPath:
    def test_that_is_missing_is_refused_with_how_to_give_it(self):
        error = refusal(parse_source, {"subscribe": "t"}, streaming=True)
        assert error.option == "path"
        assert str(error) == (
            "option path is required for a streaming read; expected a path or a file: URL, or several separated by"
            " commas. Address of the cluster: its root, or one or several of its journal nodes. `.load(path)`,"
            " `.start(path)` and `.save(path)` set it too. A table of Spark's catalog has no options: give them with"
            " each statement, as in `FROM events WITH (path='...', subscribe='...')`."
        )

    def test_is_returned_as_it_is(self):
        assert parse_sink({"path": " s3a://b/k/ "}, streaming=True).path == " s3a://b/k/ "

    def test_that_is_empty_is_refused(self):
        assert str(refusal(write, {"path": ""})) == (
            "option path is '': it is empty; expected a path or a file: URL, or several separated by commas"
        )
