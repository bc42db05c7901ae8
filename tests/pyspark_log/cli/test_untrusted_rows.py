"""Every command that reads rows says so if a chunk with a right checksum is wrong; none shows memory, or fills it."""

import os
import resource
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.topic.machine import AlterConfig, CommitBatch, Holder, SequencedFile
from pyspark_log_storage import layout
from pyspark_log_storage.columns import schema
from pyspark_log_storage.files import chunk
from pyspark_log_storage.files.row_files import StagedChunk
from tests.support.command_line import PROGRAM, CommandLine
from tests.support.plain_log import PlainLog
from tests.support.storage import hostile_chunks as hostile
from tests.support.storage.hostile_chunks import chunk_of, message_of, ordered, with_offsets

MEMORY = 1500 << 20
"""Address space for a process: its libraries take about a third of that."""

WRONG = {
    "a value outside": lambda: chunk_of(message_of(with_offsets(ordered(9, fall=4), b"v" * 9)), 9),
    "a bomb": lambda: hostile.bomb(900),
    "key that is no text": lambda: chunk_of(
        message_of(hostile.with_headers(ordered(2), [b"a", b"\xff"])), 2, schema.RECORD_WITH_HEADERS_ID
    ),
}


@pytest.fixture(params=WRONG)
def wrong(request):
    return WRONG[request.param]()


@pytest.fixture
def log(tmp_path):
    made = PlainLog(tmp_path / "log")
    made.create("t")
    made.append("t", {0: [b"first"]})
    return made


def run(log, *arguments):
    """Run a command; return its exit code, and all that it said."""
    done = CommandLine(log.path).run(*arguments, code=None)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, done.stdout + done.stderr


def run_in_little_memory(log, *arguments, memory=MEMORY):
    """Do the same in a process of its own with little memory."""
    done = subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        env=os.environ | {"PYSPARK_LOG_PATH": log.path},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory)),
        capture_output=True,
        check=False,
    )
    assert done.returncode >= 0, f"{arguments} died: {done.stderr[-2000:]!r}"
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done.returncode, (done.stdout + done.stderr).decode()


def append(log, data):
    """Put a chunk into the topic, as a writer does."""
    handle = log.log.topic("t")
    name = layout.born_name(handle.journal.number, log.log.environment.nonce())
    log.log.store.create(handle.append_file(name), data)
    header = chunk.verify(pa.py_buffer(data), "x")
    place = StagedChunk(0, 0, len(data), header.rows, 0, 0, header.schema_id, header.crc)
    holders = tuple(Holder(*each) for each in handle.journal.state.incarnations.items())
    handle.submit(CommitBatch(ProducerClaim("q", "q", "r", 1), (SequencedFile(name, holders, (place,)),)))
    return Path(log.path) / handle.append_file(name)


@pytest.mark.parametrize("run", [run, pytest.param(run_in_little_memory, marks=pytest.mark.deep)])
def test_every_command_that_reads_rows_says_where_they_are_wrong(log, wrong, run):
    file = append(log, wrong)
    log.log.topic("t").submit(AlterConfig({"flush.messages": "1"}))
    for command in (
        ("consume", "t", "--json"),
        ("dump", file, "--rows"),
        ("verify",),
        ("maintain",),
        ("recover", "t", "--all"),
    ):
        code, said = run(log, *command)
        assert code == 1, command
        assert len(said) < 2000, "and nothing of what is behind it in memory"
        assert command[0] == "dump" or "partition 0, offset" in said, command
        assert command[0] == "maintain" or "Arrow cannot read it" in said or "its rows would take" in said, command
    assert log.log.topic("t").refresh().partitions[0].segments == ()


@pytest.mark.deep
def test_a_row_of_many_bytes_that_compress_well_is_read(log):
    """It is stored as it is: a reader would not believe a small chunk that it is so large."""
    size = chunk.DECODED_BYTES + 5
    append(log, chunk.encode(with_offsets([0, size], np.full(size, ord("v"), np.uint8)), 0, "zstd")[1])
    code, said = run_in_little_memory(log, "consume", "t", memory=2 * MEMORY)
    assert (code, len(said)) == (0, len("first\n") + size + 1)
