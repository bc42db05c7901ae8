"""Processes suspended (SIGSTOP) while others continue and clean up: what they do later is right, or an error."""

import functools
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pyspark_log_coordinator.journal import replay
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_storage import layout
from tests.processes import workers
from tests.processes.fork_server import POLL_S, ForkServer, Worker
from tests.processes.small_topic import AT_ONCE, PARTITIONS, TOPIC, TopicClient, Values, rows_of, rows_of_all
from tests.processes.steps import leave_undone
from tests.processes.system_calls import SuspendAt, SuspendPoint

PATIENT = msgspec.structs.replace(AT_ONCE, orphan_retention_ms=10**9)
"""A file that waits to be sequenced stays."""
NOTHING: Values = {p: [] for p in range(PARTITIONS)}

pytestmark = [pytest.mark.usefixtures("small_constants"), pytest.mark.timeout(900)]


class Suspension:
    """A topic, and workers that are suspended while they use it and this process continues."""

    def __init__(self, fork_server: ForkServer, folder: Path, config: TopicConfig) -> None:
        self._fork_server = fork_server
        self._folder = folder
        self._suspended: list[tuple[SuspendPoint, Worker]] = []
        self.config = config
        self.root = str(folder / "root")
        self.client = TopicClient(self.root)
        self.client.create(config)
        self.client.fill("other", range(6))
        self.slot = self.client.handle.journal.number + 1
        """The slot after the newest entry that suspended workers know."""

    def suspend(self, work: Callable[..., Any], *arguments: Any, at: tuple[str, str], after: bool = False) -> int:
        """Start a worker, and return when it is suspended: at a system call with a path that contains a text."""
        path = str(self._folder / f"point {len(self._suspended)}")
        worker = self._fork_server.fork(work, self.root, SuspendAt(path, *at, after=after), *arguments)
        self._suspended.append((SuspendPoint(path), worker))
        worker.wait_for(lambda: SuspendPoint(path).is_suspended, f"it is suspended at {at}")
        return len(self._suspended) - 1

    def resume(self, worker: int = 0) -> Any:
        """Resume a suspended worker; return its result."""
        point, process = self._suspended[worker]
        point.resume()
        while not process.has_ended():  # it may have stopped only now
            process.signal(signal.SIGCONT)
            time.sleep(POLL_S)
        return process.result()

    @property
    def entry(self) -> Path:
        """The entry on that slot."""
        handle = self.client.handle
        return Path(self.root, layout.topic_journal(TOPIC, handle.topic_id), "entries", layout.number(self.slot))

    def append(self) -> None:
        """Append until everything that exists now may be trimmed."""
        begun = self.client.batches("other")
        self.client.fill("other", range(begun, begun + 20))

    def go_on(self) -> None:
        """Append and clean up, until the slot has been collected."""
        self.append()
        self.client.clean_up()
        assert not self.entry.exists()

    def check(self) -> None:
        """Hold that the log is sound, with all that the other one wrote, and goes on; a new process sees the same."""
        self.append()
        for client in (self.client, TopicClient(self.root)):
            report = client.report()
            assert report.sound, report.findings
            assert client.rows_there("other") == rows_of_all("other", client.batches("other"))
        self.client.clean_up()
        # What a replay staged stays as long as the orphan rule says.
        kept = "/append/" if self.config.orphan_retention_ms else "nothing"
        assert [key for key in self.client.rubbish() if kept not in key] == []


@pytest.fixture
def suspension(fork_server, folder):
    """Make a suspension with a configuration of the topic."""
    return functools.partial(Suspension, fork_server, folder)


AN_ENTRY = ("link", "/journal/entries/")


def test_an_entry_on_a_slot_that_was_collected_is_not_believed_and_the_batch_is_appended_properly(suspension):
    case = suspension(PATIENT)
    case.suspend(workers.write_suspended, "suspended", 0, at=AN_ENTRY)
    case.go_on()
    assert case.resume() == "done"
    assert case.entry.exists(), "the worker did not write into the slot that was collected"
    assert case.client.rows_there("suspended") == rows_of("suspended", 0)
    case.client.write("suspended", 0)
    assert case.client.rows_there("suspended") == rows_of("suspended", 0)
    case.check()
    assert not case.entry.exists(), "the next trimming deletes a void entry"


@pytest.mark.parametrize("after", [False, True])
def test_a_writer_suspended_for_longer_than_hashes_are_kept_raises_an_error_and_can_retry(
    suspension, monkeypatch, after
):
    monkeypatch.setattr(replay, "HASHES_MAX", 8)
    case = suspension(AT_ONCE)
    case.suspend(workers.write_suspended, "suspended", 0, at=AN_ENTRY, after=after)
    case.go_on()
    assert "it cannot be known any more whether it counted" in case.resume()
    assert case.client.rows_there("suspended") == (rows_of("suspended", 0) if after else NOTHING)
    case.client.write("suspended", 0)
    assert case.client.rows_there("suspended") == rows_of("suspended", 0)
    case.check()


@pytest.mark.parametrize(
    "at",
    [
        ("create", "/.tmp/"),
        ("link", "/append/"),
        ("read", "/node"),
        ("read", "/journal/entries/"),
        ("scandir", "/journal/snapshots"),
        AN_ENTRY,
    ],
)
def test_wherever_a_writer_is_suspended_its_batch_is_in_the_log_once_or_not_at_all(suspension, at):
    case = suspension(AT_ONCE)
    case.suspend(workers.write_suspended, "suspended", 0, at=at)
    case.go_on()
    outcome = case.resume()
    assert outcome == "done" or outcome.startswith("StaleFile")
    assert case.client.rows_there("suspended") == (rows_of("suspended", 0) if outcome == "done" else NOTHING)
    case.client.write("suspended", 0)
    assert case.client.rows_there("suspended") == rows_of("suspended", 0)
    case.check()


@pytest.mark.parametrize(
    "at",
    [
        ("read", "/append/"),
        ("link", ".index"),
        ("link", ".log"),
        AN_ENTRY,
        ("unlink", "/append/"),
        ("unlink", ".log"),
        ("unlink", "/journal/snapshots/"),
        ("unlink", "/journal/entries/"),
        ("unlink", "/journal/manifests/"),
        ("rename", "-checkpoint"),
    ],
)
def test_wherever_maintenance_is_suspended_it_does_no_harm_when_it_continues(suspension, monkeypatch, at):
    case = suspension(AT_ONCE)
    with monkeypatch.context() as undone:
        leave_undone(undone.setattr)
        case.append()
    if at == ("unlink", ".log"):
        case.client.maintain()
    case.suspend(workers.maintain_suspended, at=at)
    case.go_on()
    outcome = case.resume()
    assert outcome == "done" or outcome.startswith("ObjectMissing"), outcome
    case.check()


@pytest.mark.parametrize("stray", [False, True])
@pytest.mark.parametrize("at", [("read", "/journal/entries/"), ("scandir", "/journal/snapshots")])
def test_a_suspended_reader_shows_no_stale_tail(suspension, stray, at):
    case = suspension(PATIENT)
    writer = case.suspend(workers.write_suspended, "suspended", 0, at=AN_ENTRY)
    reader = case.suspend(workers.look_suspended, at=at)
    case.go_on()
    if stray:  # an entry that fits well to what the reader knows, and means nothing
        assert case.resume(writer) == "done"
        assert case.entry.exists()
    newest = case.client.handle.journal.number
    assert case.resume(reader) == (newest, [case.client.read(p) for p in range(PARTITIONS)])
    if not stray:
        assert case.resume(writer) == "done"


@pytest.mark.parametrize("part", ["/append/", ".index", ".log"])
def test_a_suspended_reader_whose_files_were_deleted_finds_its_rows_again(suspension, part):
    case = suspension(AT_ONCE)
    rows = case.client.read(0)
    case.suspend(workers.read_suspended, at=("read", part))
    case.go_on()
    assert case.resume() == rows


def test_a_suspended_reader_whose_rows_expired_raises_an_error(suspension):
    case = suspension(AT_ONCE)
    case.suspend(workers.read_suspended, at=("read", "/append/"))
    case.go_on()
    case.client.handle.submit(DeleteRecords(0, -1))
    case.client.clean_up()
    assert "DataLoss: topic 't', partition 0: offsets" in case.resume()
