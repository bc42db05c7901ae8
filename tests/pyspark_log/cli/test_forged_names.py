"""A forged snapshot names files outside of the log: no command touches them, in an optimized Python either."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from pyspark_log_coordinator.journal import snapshot
from pyspark_log_coordinator.journal.snapshot import Snapshot
from pyspark_log_coordinator.model.topic_state import PendingDeletion
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage import layout
from tests.support.plain_log import PlainLog

COMMANDS = [("maintain",), ("verify",), ("consume", "t"), ("topics", "describe", "t"), ("recover", "t")]


@pytest.fixture
def log(tmp_path):
    made = PlainLog(tmp_path / "log")
    made.create("t", file_delete_delay_ms=0)
    made.append("t", {0: [b"x"]})
    return made


def forge(log, state):
    """Put a snapshot of a state where the topic's newest one would be."""
    handle = log.log.topic("t")
    number = handle.journal.number
    entry = log.newest_entry("t").read_bytes()
    made = Snapshot(number, [topic_hash(entry)], msgspec.Raw(topic.MACHINE.encode_state(state)))
    journal = layout.topic_journal("t", handle.topic_id)
    log.log.store.put(snapshot.key(journal, number), snapshot.encode(made))


def topic_hash(entry):
    from pyspark_log_coordinator.journal.journal_entry import digest

    return digest(entry)


ALL_COMMANDS = """
import json, sys
from pyspark_log.cli.main import app

for command in json.loads(sys.argv[1]):
    try:
        app(command)
    except SystemExit as end:
        if end.code not in (0, 1, None):
            raise
"""


def run(log, flag):
    """Return what the commands print, one after the other in one process."""
    done = subprocess.run(
        [sys.executable, *flag, "-c", ALL_COMMANDS, json.dumps(COMMANDS)],
        env=os.environ | {"PYSPARK_LOG_PATH": log.path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "Traceback" not in done.stdout
    return done.stdout


@pytest.mark.parametrize("flag", [(), ("-O",)], ids=["plain", "optimized"])
@pytest.mark.parametrize(
    "key", ["../../../../outside", "append/../../../../../outside", "journal/entries/00000000000000000001"]
)
def test_a_file_that_only_a_forger_released_is_not_deleted(log, flag, key):
    outside = Path(log.path).parent / "outside"
    outside.write_bytes(b"somebody's")
    before = sorted(Path(log.path).rglob("entries/*"))
    state = log.log.topic("t").journal.state
    forge(
        log, msgspec.structs.replace(state, pending_deletions=state.pending_deletions.append([PendingDeletion(key, 0)]))
    )
    said = run(log, flag)
    assert outside.read_bytes() == b"somebody's"
    assert sorted(Path(log.path).rglob("entries/*"))[: len(before)] == before
    assert "is damaged" in said


@pytest.mark.parametrize("flag", [(), ("-O",)], ids=["plain", "optimized"])
def test_a_file_that_only_a_forger_sequenced_is_not_read(log, flag):
    """It would be of another log, whose rows are somebody else's."""
    [file] = log.files("t")
    outside = Path(log.path).parent / "outside"
    outside.write_bytes(file.read_bytes())
    file.unlink()
    state = log.log.topic("t").journal.state
    renamed = msgspec.structs.replace(state.files[0], name="../../../../outside")
    forge(log, msgspec.structs.replace(state, files=type(state.files)([renamed])))
    assert "outside" not in run(log, flag).splitlines()
    assert outside.exists()
