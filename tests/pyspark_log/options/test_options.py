"""The names, defaults and table of options, the path, and a read that is not known yet to be a batch or a stream."""

import pickle
import warnings
from pathlib import Path

import pytest

from pyspark_log.options import SourceOptions, check_source, parse_sink, parse_source
from pyspark_log.options.consumer import ConsumerOptions, WorkerOptions
from pyspark_log.options.foreign import CLIENTS_IGNORED, CLIENTS_REFUSED, IGNORED, REFUSED
from pyspark_log.options.given import TABLE, names
from pyspark_log.options.option import SINK, SOURCE, Kind, table
from pyspark_log.options.producer import ProducerOptions
from scripts.options_page import page
from tests.support.pyspark_log.parsed_options import READ, batch, refusal, stream, write

CLIENTS = (ProducerOptions, ConsumerOptions, WorkerOptions)


def test_the_table_is_what_the_docs_say():
    committed = Path(__file__).parents[3] / "docs" / "reference" / "options.md"
    assert committed.read_text() == page(), "run: python scripts/options_page.py > docs/reference/options.md"


def test_each_default_is_a_value_that_its_option_takes():
    for option in (*TABLE, *(each for options in CLIENTS for each in table(options))):
        if option.default is not None:
            option.value.read(option.default)


def test_no_name_means_two_options_and_none_is_also_ignored_or_refused():
    for kind in Kind:
        found = [option.name.lower() for option in TABLE if kind in option.kinds]
        assert len(found) == len(set(found))
    for options in CLIENTS:
        found = [name.lower() for option in table(options) for name in {option.name, *option.prefixed}]
        assert len(found) == len(set(found))
    for option in TABLE:
        for foreign in (*IGNORED, *REFUSED):
            for name in (option.name, *(f"kafka.{client}" for client in option.prefixed)):
                assert not (option.kinds & foreign.kinds and foreign.covers(name.lower())), name
    of_clients = (*CLIENTS_IGNORED, *CLIENTS_REFUSED)
    for kind, options in ((Kind.PRODUCER, ProducerOptions), (Kind.CONSUMER, ConsumerOptions)):
        taken = {name for option in table(options) for name in (option.name, *option.prefixed)}
        assert not [each for each in of_clients if kind in each.kinds and taken.intersection(each.names)]
    found = [name for each in of_clients for name in each.names]
    assert len(found) == len(set(found))


def test_each_option_says_why_it_is_not_for_the_other_kind_of_query():
    for option in TABLE:
        side = SOURCE if option.kinds <= SOURCE else SINK
        elsewhere = {kind for each in TABLE if each.name == option.name for kind in each.kinds}
        assert option.not_here or elsewhere >= side, option.name


def test_parsed_options_survive_pickle_and_are_frozen():
    assert SourceOptions.min_partitions.name == "minPartitions"
    for parsed in (stream(), batch(startingoffsets='{"t":{"0":1}}'), write()):
        assert pickle.loads(pickle.dumps(parsed)) == parsed
        with pytest.raises(AttributeError):
            parsed.path = "elsewhere"


def test_names_are_found_in_any_case_and_stand_in_messages_as_the_docs_spell_them():
    assert stream(MAXOFFSETSPERTRIGGER="5").max_offsets_per_trigger == 5
    assert write({"TXNAPPID": "a"}).txn_app_id == "a"
    error = refusal(stream, maxoffsetspertrigger="x")
    assert error.option == "maxOffsetsPerTrigger"
    assert str(error) == (
        "option maxOffsetsPerTrigger is 'x': it is not a whole number; expected a whole number, 1 or more"
        " (default: not set)"
    )


@pytest.mark.parametrize(
    ("parse", "given", "said"),
    [
        (
            stream,
            {"maxoffsetpertrigger": "5"},
            "Did you mean maxOffsetsPerTrigger?\n  Available options: path, subscribe,",
        ),
        (write, {"zzz": "5"}, "unknown option zzz for a streaming write.\n  Available options: path, topic, acks,"),
        (stream, {"acks": "all"}, "option acks is for writes and cannot be used in a streaming read"),
        (write, {"startingoffsets": "latest"}, "option startingOffsets is for reads and cannot be used in a streaming"),
        (stream, {"paths": '["/a","/b"]'}, "a cluster has one address; load one path"),
        (stream, {"option.path": "/cluster"}, "does not get the options of a catalog table; create it without them"),
        (stream, {"location": "/cluster"}, "does not get the options of a catalog table; create it without them"),
        (write, {"path": ""}, "option path is '': it is empty; expected a path or a file: URL"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused_with_what_can(parse, given, said):
    error = refusal(parse, given) if parse is write else refusal(stream, **given)
    assert said in str(error)


def test_a_path_is_required_and_stays_as_it_is():
    assert refusal(parse_source, {"subscribe": "t"}, streaming=True).option == "path"
    assert parse_sink({"path": " s3a://b/k/ "}, streaming=True).path == " s3a://b/k/ "


def test_no_message_shows_the_value_of_an_unknown_option_and_what_spark_passes_along_is_ignored_in_silence():
    assert "secret" not in str(refusal(stream, pasword="secret"))
    for key in ("checkpointlocation", "queryname", "outputmode"):
        write({key: "x"})
        stream(**{key: "x"})


class TestNotKnownYetWhetherBatchOrStream:
    """What is refused at `load()`, in words that fit both."""

    def test_a_misspelt_name_is_refused_for_a_read_with_the_options_of_both(self):
        said = str(refusal(check_source, READ | {"maxoffsetpertrigger": "5"}))
        assert said.startswith("unknown option maxoffsetpertrigger for a read. Did you mean maxOffsetsPerTrigger?")
        there = said.split("Available options: ")[1].replace("\n ", "").split(", ")
        assert max(map(len, said.splitlines())) <= 120
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

    @pytest.mark.parametrize(
        ("more", "said"),
        [
            ({"path": ""}, "option path is ''"),
            ({"failondataloss": "x"}, "option failOnDataLoss is 'x': it is not a known value;"),
            ({"startingoffsets": "sooner"}, "(default: earliest for a batch read, latest for a streaming read)"),
            ({"maxoffsetspertrigger": "0"}, "option maxOffsetsPerTrigger is '0': "),
            ({"maxtriggerdelay": "15 m"}, "option maxTriggerDelay is '15 m': "),
            ({"endingoffsets": "earliest"}, "option endingOffsets is 'earliest': "),
            ({"versionasof": "-1"}, "option versionAsOf is '-1': "),
            ({"minoffsetspertrigger": "5", "maxoffsetspertrigger": "2"}, "option minOffsetsPerTrigger is 5"),
            ({"startingtimestamp": "2", "endingtimestamp": "1"}, "which is before startingTimestamp (2)"),
        ],
    )
    def test_what_no_read_takes_is_refused(self, more, said):
        assert said in str(refusal(check_source, READ | more))

    def test_what_one_of_them_takes_passes_and_what_has_no_effect_is_not_told_twice(self):
        for more in ({"endingoffsets": "latest"}, {"versionasof": "1"}, {"startingoffsets": "latest"}):
            check_source(READ | more)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_source(READ | {"kafka.bootstrap.servers": "x"})
