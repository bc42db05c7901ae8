"""The declarations of options, their table, and parsed options through pickle."""

import pickle
from pathlib import Path

import pytest

from pyspark_log.options import SourceOptions
from pyspark_log.options.consumer import ConsumerOptions, WorkerOptions
from pyspark_log.options.foreign import IGNORED, REFUSED
from pyspark_log.options.given import TABLE
from pyspark_log.options.option import SINK, SOURCE, Kind, table
from pyspark_log.options.producer import ProducerOptions
from scripts.options_page import page
from tests.support.pyspark_log.parsed_options import batch, stream, write


class TestParsedOptions:
    @pytest.mark.parametrize("parsed", [stream(), batch(startingoffsets='{"t":{"0":1}}'), write()])
    def test_survive_pickle_and_are_frozen(self, parsed):
        assert pickle.loads(pickle.dumps(parsed)) == parsed
        with pytest.raises(AttributeError):
            parsed.path = "elsewhere"


class TestDeclaration:
    def test_is_the_field_of_the_class_and_the_value_that_of_an_instance(self):
        assert SourceOptions.min_partitions.name == "minPartitions"
        assert stream(minpartitions="3").min_partitions == 3
        assert stream().min_partitions is None

    @pytest.mark.parametrize("options", [ProducerOptions, ConsumerOptions, WorkerOptions])
    def test_has_names_that_no_other_option_of_the_client_has(self, options):
        names = [name.lower() for option in table(options) for name in {option.name, *option.prefixed}]
        assert len(names) == len(set(names))


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
        committed = Path(__file__).parents[3] / "docs" / "reference" / "options.md"
        assert committed.read_text() == page(), "run: python scripts/options_page.py > docs/reference/options.md"
