"""Processes that sleep (SIGSTOP) while others go on and tidy up: what they do when they wake is right, or an error."""

import random
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
from tests.processes.diary import Diary
from tests.processes.nursery import POLL_S, Nursery, Worker
from tests.processes.small_topic import AT_ONCE, PARTITIONS, TOPIC, Life, Values, rows_of, rows_of_all
from tests.processes.steps import leave_undone
from tests.processes.system_calls import AsleepAt, Bed

PATIENT = msgspec.structs.replace(AT_ONCE, orphan_retention_ms=10**9)
"""A file that waits to be sequenced stays."""
NOTHING: Values = {p: [] for p in range(PARTITIONS)}
WRITERS, BATCHES = 10, 40
SEED = 20_260_117

pytestmark = pytest.mark.usefixtures("small_constants")


class Dormitory:
    """A topic that somebody uses who falls asleep, while somebody else goes on."""

    def __init__(self, nursery: Nursery, folder: Path, config: TopicConfig) -> None:
        self._nursery = nursery
        self._folder = folder
        self._beds: list[tuple[Bed, Worker]] = []
        self.config = config
        self.root = str(folder / "root")
        self.life = Life(self.root)
        self.life.create(config)
        self.life.fill("other", range(6))
        self.slot = self.life.handle.journal.number + 1
        """The slot after what everybody knows who goes to sleep now."""

    def put_to_sleep(self, work: Callable[..., Any], *arguments: Any, at: tuple[str, str], after: bool = False) -> int:
        """Let a worker do something, and return once it sleeps: at a call about a path with something in it."""
        path = str(self._folder / f"bed {len(self._beds)}")
        worker = self._nursery.fork(work, self.root, AsleepAt(path, *at, after=after), *arguments)
        self._beds.append((Bed(path), worker))
        worker.wait_for(lambda: Bed(path).is_slept_in, f"sleep at {at}")
        return len(self._beds) - 1

    def wake(self, sleeper: int = 0) -> Any:
        """Let a worker that sleeps go on; return what it came to."""
        bed, worker = self._beds[sleeper]
        bed.let_wake()
        while not worker.has_ended():  # it may have stopped only now
            worker.signal(signal.SIGCONT)
            time.sleep(POLL_S)
        return worker.result()

    @property
    def entry(self) -> Path:
        """The entry on that slot."""
        handle = self.life.handle
        return Path(self.root, layout.topic_journal(TOPIC, handle.topic_id), "entries", layout.number(self.slot))

    def append(self) -> None:
        """Append, far enough for everything that is there now to be collected."""
        begun = self.life.batches("other")
        self.life.fill("other", range(begun, begun + 20))

    def go_on(self) -> None:
        """Append and tidy up, until the slot has been collected."""
        self.append()
        self.life.clean_up()
        assert not self.entry.exists()

    def check(self) -> None:
        """Hold that the log is sound, with all that the other one wrote, and goes on; a new process sees the same."""
        self.append()
        for life in (self.life, Life(self.root)):
            report = life.report()
            assert report.sound, report.findings
            assert life.rows_there("other") == rows_of_all("other", life.batches("other"))
        self.life.clean_up()
        # What a replay staged stays as long as the orphan rule says.
        kept = "/append/" if self.config.orphan_retention_ms else "nothing"
        assert [key for key in self.life.rubbish() if kept not in key] == []


@pytest.fixture
def asleep(nursery, folder):
    """Make a dormitory."""
    return lambda config: Dormitory(nursery, folder, config)


AN_ENTRY = ("link", "/journal/entries/")


def test_an_entry_on_a_slot_that_was_collected_is_not_believed_and_the_batch_is_appended_properly(asleep):
    room = asleep(PATIENT)
    room.put_to_sleep(workers.write_asleep, "sleeper", 0, at=AN_ENTRY)
    room.go_on()
    assert room.wake() == "done"
    assert room.entry.exists(), "the sleeper did not write on the slot that was collected"
    assert room.life.rows_there("sleeper") == rows_of("sleeper", 0)
    room.life.write("sleeper", 0)
    assert room.life.rows_there("sleeper") == rows_of("sleeper", 0)
    room.check()
    assert not room.entry.exists(), "what means nothing goes with the next trimming"


def test_a_batch_whose_file_was_tidied_away_while_its_writer_slept_is_an_error(asleep):
    room = asleep(AT_ONCE)
    room.put_to_sleep(workers.write_asleep, "sleeper", 0, at=AN_ENTRY)
    room.go_on()
    assert room.wake().startswith("StaleFile: topic 't'")
    assert room.life.rows_there("sleeper") == NOTHING
    room.life.write("sleeper", 0)
    assert room.life.rows_there("sleeper") == rows_of("sleeper", 0)
    room.check()


def test_an_entry_that_was_collected_after_its_writer_fell_asleep_counted(asleep):
    room = asleep(AT_ONCE)
    room.put_to_sleep(workers.write_asleep, "sleeper", 0, at=AN_ENTRY, after=True)
    assert room.entry.exists()
    room.go_on()
    assert room.wake() == "done"
    assert not room.entry.exists()
    assert room.life.rows_there("sleeper") == rows_of("sleeper", 0)
    room.check()


def test_who_asks_about_a_batch_that_is_there_and_whose_entry_goes_meanwhile_is_told_so(asleep):
    """The entry is made durable once more, which finds it there; then it is trimmed, before it can be looked at."""
    room = asleep(AT_ONCE)
    room.put_to_sleep(workers.write_asleep, "other", 5, at=AN_ENTRY, after=True)
    room.go_on()
    assert room.wake() == "done"
    room.check()


@pytest.mark.parametrize("after", [False, True])
def test_who_slept_longer_than_the_journal_remembers_says_so_and_can_ask_again(asleep, monkeypatch, after):
    monkeypatch.setattr(replay, "HASHES_MAX", 8)
    room = asleep(AT_ONCE)
    room.put_to_sleep(workers.write_asleep, "sleeper", 0, at=AN_ENTRY, after=after)
    room.go_on()
    assert "it cannot be known any more whether it counted" in room.wake()
    assert room.life.rows_there("sleeper") == (rows_of("sleeper", 0) if after else NOTHING)
    room.life.write("sleeper", 0)
    assert room.life.rows_there("sleeper") == rows_of("sleeper", 0)
    room.check()


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
def test_wherever_a_writer_sleeps_its_batch_is_in_the_log_once_or_not_at_all(asleep, at):
    room = asleep(AT_ONCE)
    room.put_to_sleep(workers.write_asleep, "sleeper", 0, at=at)
    room.go_on()
    outcome = room.wake()
    assert outcome == "done" or outcome.startswith("StaleFile")
    assert room.life.rows_there("sleeper") == (rows_of("sleeper", 0) if outcome == "done" else NOTHING)
    room.life.write("sleeper", 0)
    assert room.life.rows_there("sleeper") == rows_of("sleeper", 0)
    room.check()


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
def test_wherever_a_maintainer_sleeps_it_does_no_harm_when_it_wakes(asleep, monkeypatch, at):
    room = asleep(AT_ONCE)
    with monkeypatch.context() as undone:
        leave_undone(undone.setattr)
        room.append()
    if at == ("unlink", ".log"):
        room.life.maintain()
    room.put_to_sleep(workers.maintain_asleep, at=at)
    room.go_on()
    outcome = room.wake()
    assert outcome == "done" or outcome.startswith("ObjectMissing"), outcome
    room.check()


def test_a_segment_that_was_tidied_away_while_its_maker_slept_is_never_swapped_in(asleep, monkeypatch):
    room = asleep(AT_ONCE)
    with monkeypatch.context() as undone:
        leave_undone(undone.setattr)
        room.append()
        room.put_to_sleep(workers.maintain_asleep, at=AN_ENTRY)
        room.go_on()  # without rolling: the range of the segment is as it was
    assert room.wake() == "done"
    room.check()


@pytest.mark.parametrize("stray", [False, True])
@pytest.mark.parametrize("at", [("read", "/journal/entries/"), ("scandir", "/journal/snapshots")])
def test_a_reader_that_slept_shows_nothing_stale_as_the_tail(asleep, stray, at):
    room = asleep(PATIENT)
    writer = room.put_to_sleep(workers.write_asleep, "sleeper", 0, at=AN_ENTRY)
    reader = room.put_to_sleep(workers.look_asleep, at=at)
    room.go_on()
    if stray:  # an entry that fits well to what the reader knows, and means nothing
        assert room.wake(writer) == "done"
        assert room.entry.exists()
    newest = room.life.handle.journal.number
    assert room.wake(reader) == (newest, [room.life.read(p) for p in range(PARTITIONS)])
    if not stray:
        assert room.wake(writer) == "done"


@pytest.mark.parametrize("part", ["/append/", ".index", ".log"])
def test_a_reader_whose_files_went_while_it_slept_finds_its_rows_again(asleep, part):
    room = asleep(AT_ONCE)
    rows = room.life.read(0)
    room.put_to_sleep(workers.read_asleep, at=("read", part))
    room.go_on()
    assert room.wake() == rows


def test_a_reader_whose_rows_expired_while_it_slept_says_so(asleep):
    room = asleep(AT_ONCE)
    room.put_to_sleep(workers.read_asleep, at=("read", "/append/"))
    room.go_on()
    room.life.handle.submit(DeleteRecords(0, -1))
    room.life.clean_up()
    assert "DataLoss: topic 't', partition 0: offsets" in room.wake()


def test_ten_processes_append_while_another_trims_as_fast_as_it_can_and_some_sleep(nursery, folder):
    root, diary, stop, dice = str(folder / "root"), str(folder / "diary"), str(folder / "stop"), random.Random(SEED)
    life = Life(root)
    life.create(AT_ONCE)
    names = [f"writer{i}" for i in range(WRITERS)]
    writers = [nursery.fork(workers.write_batches, root, name, BATCHES, diary) for name in names]
    trimmer = nursery.fork(workers.trim_until, root, stop)
    readers = [nursery.fork(workers.look_until, root, diary, stop) for _ in range(2)]
    naps = 0
    while not all(each.has_ended() for each in writers):
        asleep = dice.sample([*writers, trimmer, *readers], 3)
        for each in asleep:
            each.signal(signal.SIGSTOP)
        time.sleep(dice.uniform(0, 0.05))
        for each in asleep:
            each.signal(signal.SIGCONT)
        naps += len(asleep)
        time.sleep(dice.uniform(0, 0.01))
    Diary(stop).note("stop")
    assert trimmer.result() > WRITERS * BATCHES / 2
    assert all(reader.result() > 0 for reader in readers)
    for writer in writers:
        writer.result()
    assert naps > 0
    report = life.report()
    assert report.sound, report.findings
    for p in range(PARTITIONS):
        values = life.read(p)[1]
        assert len(values) == sum(len(rows_of_all(name, BATCHES)[p]) for name in names)
        for name in names:
            assert life.rows_there(name)[p] == rows_of_all(name, BATCHES)[p]
    assert life.handle.journal.number > WRITERS * BATCHES
    life.clean_up()
    assert life.rubbish() == []
