"""What docs/reference/options.md says of each option and setting is what the code takes."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from pyspark_log.options import SinkOptions, SourceOptions
from pyspark_log.options.clients import ConsumerOptions, ProducerOptions, WorkerOptions
from pyspark_log.options.foreign import IGNORED, KAFKA_PREFIX, REFUSED
from pyspark_log.options.given import gather
from pyspark_log.options.option import CLIENTS, QUERIES, REQUIRED, SINK, SOURCE, Kind
from pyspark_log_coordinator.group.config import GroupConfig
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_storage.errors import InvalidOption

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "options.md").read_text()
SINK_TITLE = "Sink: `df.write` and `df.writeStream`"
WHO = {"both": QUERIES, "source": SOURCE, "sink": SINK, "all": CLIENTS}
LEGEND = {
    r"^a whole number,? (?:from )?(\d) to 2147483647$": r"int ≥ \1",
    r"^a whole number, (-?\d) or more$": r"long ≥ \1",
    r"^a whole number ": "",
    r"^text of 1 to 255 characters$": "text",
    r"^1 to 255 printable characters$": "printable text",
    r"^milliseconds since 1970-01-01 UTC$": "a time",
    r"^JSON with milliseconds since .*": "times",
    r"\bJSON with an offset for each partition.*": "offsets",
}
"""The words of the page for what a message says at length."""
WHO |= {name: {Kind[name.upper()]} for name in ("Producer", "Consumer", "Worker")}


def section(title):
    (found,) = re.findall(rf"^## {re.escape(title)}\n(.*?)(?:^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return found


def rows(title):
    """Return the cells of the table below a heading, without those that are prose."""
    lines = [line for line in section(title).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


def default_cell(option, cell):
    """Return what the page has to say, which is its own words if the option has no default."""
    if option.default is None:
        return "words" if re.fullmatch("`[^`]*`", cell) else cell
    return cell if option.default == REQUIRED and "required" in cell else f"`{option.default}`"


def values_cell(value):
    """Return what is taken, in the words that the page explains at its beginning."""
    said = value.takes
    for long, short in LEGEND.items():
        said = re.sub(long, short, said)
    return said


def names_cell(option):
    return ", ".join(f"`{name}`" for name in [option.name, *option.also.split()])


@pytest.mark.parametrize(
    ("title", "options", "side"),
    [
        ("Source: `spark.read` and `spark.readStream`", SourceOptions, SOURCE - {Kind.READ}),
        (SINK_TITLE, SinkOptions, SINK),
    ],
)
def test_each_option_of_a_query_is_on_the_page_with_its_kinds_values_and_default(title, options, side):
    said = [row[:4] for row in rows(title)]
    for option, (names, kinds, values, default) in zip(options.declared, said, strict=True):
        found = (option.kinds or side) & side
        which = "both" if found == side else "batch" if found <= {Kind.SOURCE_BATCH, Kind.SINK_BATCH} else "streaming"
        taken = (names_cell(option), which, values_cell(option.value), default_cell(option, default))
        assert (names, kinds, values, default) == taken


@pytest.mark.parametrize(
    ("titles", "options"),
    [
        (["Producer"], ProducerOptions),
        (["Consumer", "Producer"], ConsumerOptions),
        (["Worker", "Consumer", "Producer"], WorkerOptions),
    ],
)
def test_each_option_of_a_client_is_on_the_page_with_its_values_and_default(titles, options):
    """An option that several clients share, or a Producer and the sink, is in the first one's table alone."""
    said = [{names: cells for names, *cells, _ in rows(title)} for title in titles]
    said.append({names.partition(",")[0]: cells for names, _, *cells, _ in rows(SINK_TITLE)})
    assert said[0].keys() <= {names_cell(option) for option in options.declared}
    for option in options.declared:
        names = names_cell(option)
        if not any(names in cells for cells in said[:-1]):
            assert all(name in section(titles[0]) for name in names.split(", "))
            names = f"`{option.name}`"
        values, default = next(cells[names] for cells in said if names in cells)
        assert (values, default) == (values_cell(option.value), default_cell(option, default))


@pytest.mark.parametrize(
    ("title", "config"), [("Settings of a topic", TopicConfig), ("Settings of a group", GroupConfig)]
)
def test_each_setting_is_on_the_page_with_its_values_and_default(title, config):
    defaults = config().words()
    settings = [
        [f"`{each.name}`", values_cell(each), f"`{defaults[each.name] or 'none'}`"] for each in config.settings()
    ]
    assert [row[:3] for row in rows(title)] == settings


def foreign(title):
    """Return the names in a list of Kafka's settings, each with the kinds that it is about."""
    text = section(title).replace("\n  ", " ")
    items = re.findall(r"^- (`.*?`)(?: \(([A-Za-z, ]*)\))?: ", text, re.MULTILINE)
    everybody = "all" if "clients" in title else "both"
    return [
        (name, frozenset().union(*(WHO[who] for who in (kinds or everybody).split(", "))))
        for names, kinds in items
        for name in re.findall("`([^`]+)`", names)
    ]


@pytest.mark.parametrize("title", ["Accepted and ignored", "Accepted and ignored by the Python clients"])
def test_what_the_page_calls_ignored_is_ignored(title):
    for name, kinds in foreign(title):
        for kind in kinds:
            assert gather({name.replace("*", "x"): "1"}, kind).texts == {}, (name, kind)


@pytest.mark.parametrize("title", ["Refused", "Refused by the Python clients"])
def test_what_the_page_calls_refused_is_refused(title):
    for name, kinds in foreign(title):
        for kind in kinds:
            with pytest.raises(InvalidOption, match="cannot be used in"):
                gather({name.replace("*", "x"): "1"}, kind)


def test_all_that_is_ignored_or_refused_is_on_the_page():
    titles = [f"{what}{by}" for what in ("Accepted and ignored", "Refused") for by in ("", " by the Python clients")]
    names = [name.lower().replace("_", ".") for title in titles for name, _ in foreign(title)]
    names += [name.removeprefix(KAFKA_PREFIX) for name in names]
    words = {word for listed in (*IGNORED.values(), *(words for _, words, _ in REFUSED)) for word in listed.split()}
    assert not [word for word in words if not any(fnmatchcase(name, word) for name in names)]
