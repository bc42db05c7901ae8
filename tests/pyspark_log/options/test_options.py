"""The names, defaults and table of options, the path, and a read that is not known yet to be a batch or a stream."""

import pickle

import pytest

from pyspark_log.options import SinkOptions, SourceOptions, check_source, parse_sink, parse_source
from pyspark_log.options.clients import ConsumerOptions, ProducerOptions, WorkerOptions
from pyspark_log.options.given import names
from pyspark_log.options.option import REQUIRED, SINK, SOURCE, Kind
from tests.support.pyspark_log.parsed_options import READ, batch, refusal, stream, write

ALL = (SourceOptions, SinkOptions, ProducerOptions, ConsumerOptions, WorkerOptions)


@pytest.mark.parametrize("options", ALL)
def test_no_name_means_two_options(options):
    for kind in (SOURCE | SINK | {Kind.PRODUCER}) - {Kind.READ}:
        declared = [each for each in options.declared if kind in (each.kinds or {kind})]
        found = [name.lower() for each in declared for name in [each.name, *each.also.split()]]
        assert len(found) == len(set(found))


def test_parsed_options_survive_pickle_and_are_frozen():
    assert SourceOptions.min_partitions.name == "minPartitions"
    for parsed in (stream(), batch(startingoffsets='{"t":{"0":1}}'), write()):
        assert pickle.loads(pickle.dumps(parsed)) == parsed
        with pytest.raises(AttributeError):
            parsed.path = "elsewhere"


@pytest.mark.parametrize(
    ("parse", "given", "said"),
    [
        (write, {"zzz": "5"}, "unknown option zzz for a streaming write.\n  Available options: path, topic, acks,"),
        (stream, {"acks": "all"}, "option acks is for a batch write or a streaming write, not for a streaming read"),
        (stream, {"endingoffsets": "latest"}, "endingOffsets is for a batch read, not for a streaming read; remove it"),
        (write, {"maxoffsetspertrigger": "5"}, "is for a streaming read, not for a streaming write"),
        (batch, {"group.id": "g"}, "option group.id is for a streaming read, not for a batch read; remove it"),
        (stream, {"paths": '["/a","/b"]'}, "remove it, and load one path"),
        (stream, {"option.path": "/cluster"}, "remove it, and give options with each statement"),
        (write, {"path": ""}, "option path is '': it is empty; expected a path or a file: URL"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused_with_what_can(parse, given, said):
    error = refusal(parse, given) if parse is write else refusal(parse, **given)
    assert said in str(error)


def test_a_path_is_required_and_stays_as_it_is():
    said = str(refusal(parse_source, {"subscribe": "t"}, streaming=True))
    assert said.startswith("option path is required for a streaming read; expected a path or a file: URL")
    assert parse_sink({"path": " s3a://b/k/ "}, streaming=True).path == " s3a://b/k/ "
    assert parse_sink({"path": REQUIRED}, streaming=True).path == REQUIRED


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

    def test_what_one_of_them_takes_passes_and_what_has_no_effect_is_not_told_twice(self):
        for more in ({"versionasof": "1"}, {"startingoffsets": "latest"}, {"kafka.bootstrap.servers": "x"}):
            check_source(READ | more)
