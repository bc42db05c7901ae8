"""Journal: the cost of a commit if three stores agree on it, and if one store decides alone. All on one disk.

A commit is an entry of a topic's journal: a batch with a chunk in each of 8 partitions, from 8 tasks. No rows are
written. Commits on one store and on three alternate, with a pause after each, in which the third store catches up.
Three stores on separate disks would not wait for one another's flushes, so the ratio here is the worst case. The floor
is the time of the disk itself: three threads create a file of the same size in three folders until two of them are
done, compared with one thread and one folder.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import time
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from typing import TYPE_CHECKING, Protocol

from benchmarks.report import Line, at_most, detail
from benchmarks.stopwatch import percentile
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.place import JournalPlace, Member, OneStore, SeveralStores
from pyspark_log_coordinator.model.batch import SequencedFile
from pyspark_log_coordinator.model.partition import Holder
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.sequencing import CommitBatch
from pyspark_log_storage import layout
from pyspark_log_storage.columns import schema
from pyspark_log_storage.files.row_files import StagedChunk
from pyspark_log_storage.layout import born_name
from pyspark_log_storage.objects import node
from pyspark_log_storage.stores.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

PARTITIONS = 8
STORES = 3
WARM_UP = 20
PAUSE_SECONDS = 0.005
TARGET = 1.5
MILLI = 1_000
ENTRY_BYTES = 1_500


class Committer(Protocol):
    """A thing whose time is measured."""

    def commit(self) -> float:
        """Run it once and return the milliseconds."""


class Writer:
    """A process that commits batches to one topic's journal."""

    def __init__(self, place: JournalPlace, name: str) -> None:
        self._environment = real_environment()
        self._journal = Journal(place, "topics/t/1/journal/", topic.MACHINE)
        self._name = name
        self._batches = 0
        if not self._journal.refresh().started:
            assignments = (("0",),) * PARTITIONS
            schemas = tuple(map(schema.encode, schema.RECORD_SCHEMAS))
            began = topic.TopicStarted("t", "1", TopicConfig(), schemas, {"0": "i"}, assignments)
            self._journal.submit(topic.StartTopic(began))

    def commit(self) -> float:
        """Commit a batch and return the milliseconds."""
        born = self._journal.number
        files = tuple(
            SequencedFile(
                born_name(born, self._environment.nonce()),
                (Holder("0", "i"),),
                (StagedChunk(partition, 0, 8_192, 125, 0, 0, 0, 0),),
            )
            for partition in range(PARTITIONS)
        )
        claim = ProducerClaim(self._name, self._name, "run", self._batches)
        self._batches += 1
        begun = time.perf_counter()
        outcome = self._journal.submit(CommitBatch(claim, files))
        took = time.perf_counter() - begun
        assert len(outcome.events) > 0, "the batch was in the log already"
        return took * MILLI


def measure_journal(folder: Path, commits: int, say: Callable[..., object]) -> list[Line]:
    """Return the lines of commits by one writer, by two alternating writers, and with an unreachable store."""
    base = folder / "journal"
    roots = [base / f"disk-{number}" for number in range(STORES)]
    for number, root in enumerate(roots):
        LocalStore(str(root)).create(layout.MARKER, node.encode(node.Marker("c", str(number), "life")))

    def three() -> SeveralStores:
        stores = [LocalStore(str(root)) for root in roots]
        members = [Member(store, str(number), "life") for number, store in enumerate(stores)]
        return SeveralStores(members, real_environment())

    def one() -> OneStore:
        return OneStore(LocalStore(str(base / "alone")), real_environment())

    alone, agreed = Writer(one(), "first"), Writer(three(), "first")
    lines = _compared("commit, a journal on three stores beside one", [agreed], [alone], commits, target=True)
    say(f"commits by one writer: {lines[0].product:.2f} ms on three stores, {lines[0].ceiling:.2f} ms on one")
    others = Writer(three(), "second"), Writer(one(), "second")
    lines += _floor(base, commits)
    lines += _compared("commit after another writer's", [agreed, others[0]], [alone, others[1]], commits)
    shutil.move(roots[-1], base / "away")
    lines += _compared("commit, one of the three stores away", [agreed], [alone], commits)
    return lines


class Creator:
    """Creates a file in several folders at once."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._stores = [LocalStore(str(folder)) for folder in folders]
        self._threads = ThreadPoolExecutor(len(folders))
        self._created = 0

    def commit(self) -> float:
        """Return the milliseconds until a majority of the files exists."""
        self._created += 1
        key = f"entries/{self._created:020d}"
        begun = time.perf_counter()
        calls = [self._threads.submit(each.create, key, bytes(ENTRY_BYTES)) for each in self._stores]
        for each in itertools.islice(as_completed(calls), len(calls) // 2 + 1):
            assert each.result(), f"{key} was there"
        took = time.perf_counter() - begun
        wait(calls)
        return took * MILLI


def _floor(base: Path, times: int) -> list[Line]:
    alone, *folders = [base / f"floor-{number}" for number in range(1 + STORES)]
    return _compared(
        "the disk alone: a file in two of three folders beside one", [Creator(folders)], [Creator([alone])], times
    )


def _compared(
    name: str, agreed: Sequence[Committer], alone: Sequence[Committer], commits: int, *, target: bool = False
) -> list[Line]:
    """Return the median and the 95th percentile of commits; the writers of each side alternate."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(WARM_UP + commits):
        took = []
        for side in (agreed, alone):
            time.sleep(PAUSE_SECONDS)
            took.append(side[number % len(side)].commit())
        if number >= WARM_UP:
            for every, each in zip(times, took, strict=True):
                every.append(each)
    lines = []
    for what, value in (("median", statistics.median), ("95th percentile", lambda side: percentile(side, 95))):
        ours, theirs = value(times[0]), value(times[1])
        if target:
            lines.append(Line(f"{name}, {what}", "ms", ours, theirs, ours / theirs, at_most(TARGET)))
        else:
            lines.append(detail(f"{name}, {what}", "ms", ours, theirs))
    return lines
