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
from pyspark_log_storage.files import chunk, index
from pyspark_log_storage.files.row_files import StagedChunk
from pyspark_log_storage.segments import recovery, segment
from tests.support.command_line import PROGRAM
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


def run(log, *arguments, memory=MEMORY):
    """Run the program with little memory; return its exit code, and all that it said."""
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


def test_a_reader_says_at_which_offset_it_is(log, wrong):
    append(log, wrong)
    code, said = run(log, "consume", "t", "--json")
    assert code == 1
    assert "partition 0, offsets 1 to" in said
    assert "Arrow cannot read it" in said or "its rows would take" in said
    assert len(said) < 2000, "and nothing of what is behind it in memory"


def test_verify_finds_it(log, wrong):
    append(log, wrong)
    code, said = run(log, "verify")
    assert code == 1
    assert "t: partition 0, offset 1 " in said


def test_maintain_does_not_roll_it(log, wrong):
    append(log, wrong)
    log.log.topic("t").submit(AlterConfig({"flush.messages": "1"}))
    code, said = run(log, "maintain")
    assert code == 1
    assert "partition 0, offset 1" in said
    assert log.log.topic("t").refresh().partitions[0].segments == ()


def test_dump_says_so(log, wrong):
    code, said = run(log, "dump", append(log, wrong), "--rows")
    assert code == 1
    assert "Arrow cannot read it" in said or "its rows would take" in said
    assert len(said) < 2000


def test_recover_does_not_call_it_good(log, wrong):
    append(log, wrong)
    run(log, "maintain")
    code, said = run(log, "recover", "t", "--all")
    assert code == 1
    assert "partition 0, offset 1" in said
    assert "Arrow cannot read it" in said or "its rows would take" in said


def test_a_segment_that_an_older_version_rolled_is_not_called_good(log, wrong):
    good = chunk.encode(with_offsets(ordered(1), b"v"), 0, "none")[1]
    writer = segment.SegmentWriter(log.log.store, "t/0/", layout.segment_name(0, 1, "a" * 32), 0, ((0, 0),))
    for data in (good, wrong):
        writer.append(chunk.verify(pa.py_buffer(data), "x"), data)
    writer.close()
    found = recovery.recover(log.log.store, "t/0/", 0, dry_run=True)
    assert found.end_offset == 1
    assert found.damage is not None


def test_an_index_that_claims_more_than_it_holds_is_not_listed(log):
    append(log, chunk.encode(with_offsets(ordered(9), b"v" * 9), 0, "none")[1])
    log.log.topic("t").submit(AlterConfig({"flush.messages": "1"}))
    run(log, "maintain")
    [path] = Path(log.path).glob("topics/t/*/0/*.index")
    data = path.read_bytes()
    fields = index._FIELDS.pack(b"PLIX", 1, 0, 0, 2**32 - 1, 2**40, 2**32 - 1, 0, 0)
    path.write_bytes(fields + hostile.crc(fields) + data[64:])
    for command in (("dump", path), ("verify",)):
        code, said = run(log, *command)
        assert code == 1
        assert "index" in said
    code, said = run(log, "consume", "t")
    assert (code, said.splitlines()[0]) == (0, "first"), "the rows are found without it"
    assert run(log, "verify", "--repair")[0] == 0


def test_a_row_of_many_bytes_that_compress_well_is_read(log):
    """It is stored as it is: a reader would not believe a small chunk that it is so large."""
    size = chunk.DECODED_BYTES + 5
    append(log, chunk.encode(with_offsets([0, size], np.full(size, ord("v"), np.uint8)), 0, "zstd")[1])
    code, said = run(log, "consume", "t", memory=2 * MEMORY)
    assert (code, len(said)) == (0, len("first\n") + size + 1)
