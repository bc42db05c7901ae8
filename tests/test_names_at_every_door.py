"""A name that leads out of its folder, or looks like another one, is refused at every door where people give it.

    options      topics, partitions, offsets, groups, members and racks, of queries and of Python clients
    rows         the column `topic`
    commands     arguments, options and files of the command line

Those at which it comes out of a store are in `test_stored_names`.
"""

import json

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from pyspark_log.cli.main import app
from pyspark_log.clients.consumer_group import SubscribedTopics
from pyspark_log.options import parse_sink, parse_source
from pyspark_log.options.consumer import parse_consumer
from pyspark_log.writing.destination import destination_of
from pyspark_log.writing.rows import Rows
from pyspark_log.writing.staging import Staging
from pyspark_log_storage.errors import InvalidName, LogError
from tests.support.command_line import CommandLine
from tests.support.hostile_names import HOSTILE, TYPICAL, UNPRINTABLE
from tests.support.plain_log import PlainLog, record

REAL = "flights"
PADDED = {"empty", "a line break at the end"}
"""Blanks around the value of an option are no part of it; and an option that is empty is not given."""


def each(names, without=()):
    chosen = {what: name for what, name in names.items() if what not in without}
    return pytest.mark.parametrize("name", list(chosen.values()), ids=list(chosen))


def door(**doors):
    return pytest.mark.parametrize("enter", list(doors.values()), ids=list(doors))


# Options


def streaming(**options):
    return parse_source({"path": "/x", "subscribe": REAL} | options, streaming=True)


@door(
    subscribe=lambda name: streaming(subscribe=name),
    assign=lambda name: parse_source({"path": "/x", "assign": json.dumps({name: [0]})}, streaming=True),
    starting_offsets=lambda name: streaming(startingOffsets=json.dumps({name: {"0": 1}})),
    starting_offsets_of_a_topic=lambda name: streaming(startingOffsets=json.dumps({name: "earliest"})),
    starting_timestamps=lambda name: streaming(startingOffsetsByTimestamp=json.dumps({name: {"0": 1}})),
    member=lambda name: streaming(**{"group.id": "g", "group.protocol": "cooperative", "group.instance.id": name}),
    topic=lambda name: parse_sink({"path": "/x", "topic": name}, streaming=True),
    dead_letters=lambda name: parse_sink({"path": "/x", "topic": REAL, "dead.letter.topic": name}, streaming=True),
    member_of_a_client=lambda name: parse_consumer({"path": "/x", "group.id": "g", "group.instance.id": name}, {}),
)
@each(HOSTILE, without=PADDED)
def test_options(enter, name):
    with pytest.raises(LogError):
        enter(name)


@door(
    group=lambda name: streaming(**{"group.id": name}),
    rack=lambda name: streaming(**{"client.rack": name}),
    group_of_a_client=lambda name: parse_consumer({"path": "/x", "group.id": name}, {}),
)
@each(UNPRINTABLE, without=PADDED)
def test_options_that_name_groups_and_racks(enter, name):
    with pytest.raises(LogError):
        enter(name)


@each(HOSTILE)
def test_topics_of_a_client(name):
    with pytest.raises(InvalidName):
        SubscribedTopics([name], None)


# Rows


@each(HOSTILE, without={"half a character"})
def test_the_column_topic(name):
    """Arrow has no string with half a character."""
    log = PlainLog()
    before = list(log.log.store.list(""))
    staging = Staging(
        log.log.store_at,
        lambda each: destination_of(log.log.ensure_topic(each, 1), None, 1000),
        None,
        environment=log.log.environment,
        durable=True,
        sticky=0,
    )
    staging.add(Rows(record([b"x"]), pa.array([name]), None))
    with pytest.raises(InvalidName):
        staging.finish()
    staging.discard()
    assert list(log.log.store.list("")) == before


# The command line


@pytest.fixture(scope="module")
def cli(tmp_path_factory):
    made = CommandLine(tmp_path_factory.mktemp("cli") / "log")
    made.run("topics", "create", REAL)
    return made


def refusal(cli, *words):
    """Return what a command says that exits with an error, and that raises nothing."""
    result = CliRunner().invoke(app, [str(word) for word in words], env={"PYSPARK_LOG_PATH": str(cli.path)})
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in {1, 2}
    return result.stderr


@door(
    create=("topics", "create", "--", "NAME"),
    delete=("topics", "delete", "--yes", "--", "NAME"),
    describe=("topics", "describe", "--", "NAME"),
    alter=("topics", "alter", "--config", "retention.ms=1", "--", "NAME"),
    produce=("produce", "--", "NAME"),
    consume=("consume", "--", "NAME"),
    offsets=("offsets", "--", "NAME"),
    delete_records=("delete-records", "--yes", "--partition", "0", "--before", "1", "--", "NAME"),
    maintain=("maintain", "--", "NAME"),
    verify=("verify", "--", "NAME"),
    recover=("recover", "--", "NAME"),
    reset_offsets=("groups", "reset-offsets", "g", "--to-earliest", "--topic", "NAME", "--execute"),
    node=("nodes", "add", "/tmp/nowhere", "--id", "NAME"),
)
@each(TYPICAL)
def test_commands(cli, enter, name):
    before = sorted(cli.path.rglob("*"))
    said = refusal(cli, *(name if word == "NAME" else word for word in enter))
    assert f"invalid {'node' if '--id' in enter else 'topic'} name" in said or "does not exist" in said
    assert "\x1b[2J" not in said, "the terminal is cleared"
    assert sorted(cli.path.rglob("*")) == before


@each(TYPICAL)
def test_a_file_of_offsets(cli, tmp_path, name):
    file = tmp_path / "offsets.csv"
    file.write_text('"' + name.replace('"', '""') + '",0,0\n', newline="")
    for command in (("reset-offsets", "g", "--from-file", file), ("import", file, "--group", "g")):
        said = refusal(cli, "groups", *command, "--execute")
        assert "invalid topic name" in said or "is not topic,partition,offset" in said
