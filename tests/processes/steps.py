"""The steps of a log's long life, one at a time: a topic in which the step is due, and what carries it out."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from pyspark_log_coordinator.commit import inline_maintenance
from pyspark_log_coordinator.maintenance.roll_job import roll_task_of
from pyspark_log_coordinator.maintenance.roll_run import run_roll
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.segments.retention import DeleteRecords
from tests.processes.diary import Diary
from tests.processes.small_topic import AT_ONCE, PARTITIONS, SNAPSHOT_EVERY, Life, make_constants_small, rows_of

NEVER = 10**9
PRODUCER = "q"
BEGIN_MS = 1_700_000_000_000
LATER_MS = BEGIN_MS + 1_000_000

Done = tuple[str, str]
"""A call of the operating system, and what kind of file it is about."""


class Step(msgspec.Struct):
    """What is prepared, what is done, and what that must come to, so that a test of it is one of this step."""

    prepare: Callable[[Life], None]
    act: Callable[[Life, "Writing"], None]
    does: set[Done]
    config: TopicConfig = AT_ONCE


_KINDS = {
    r"/\.tmp/": "temporary",
    r"/entries/": "entry",
    r"/snapshots/": "snapshot",
    r"/manifests/": "manifest",
    r"/append/": "append file",
    r"\.log$": "segment",
    r"\.index$": "index",
    r"-checkpoint$": "checkpoint",
}


def kind_of(path: str) -> str:
    """Return what kind of file lies at a path."""
    return next((kind for pattern, kind in _KINDS.items() if re.search(pattern, path)), "")


def leave_undone(set_attribute: Callable[[Any, str, Any], object] = setattr) -> None:
    """Let this process do no upkeep by itself."""
    for module, name in (
        (roll_plan, "ROLL_CHUNKS"),
        (roll_plan, "MERGE_COUNT"),
        (inline_maintenance, "CLEAN_UP_EVERY_ENTRIES"),
    ):
        set_attribute(module, name, NEVER)


def a_snapshot_is_due(life: Life) -> None:
    """Write until the next entry gets a snapshot, and older ones have been trimmed."""
    while life.handle.journal.number < 4 * SNAPSHOT_EVERY or (life.handle.journal.number + 1) % SNAPSHOT_EVERY:
        life.write(PRODUCER, life.batches(PRODUCER))


def unrolled(life: Life) -> None:
    """Make more chunks than should be unrolled, and more entries and snapshots than are kept."""
    leave_undone()
    life.fill(PRODUCER, range(14))


def small_segments(life: Life) -> None:
    """Make small segments that wait to be merged, and append files that wait to go."""
    leave_undone()
    roll_plan.ROLL_CHUNKS = 2
    life.fill(PRODUCER, range(11))


def merged_segments(life: Life) -> None:
    """Make segments that have replaced others, which wait to go."""
    small_segments(life)
    make_constants_small()
    life.maintain()


def files_of_the_dead(life: Life) -> None:
    """Leave what killed tasks and rollers leave, old enough to go."""
    leave_undone()
    life.fill(PRODUCER, range(6))
    life.stage(rows_of("dead", 0))
    life.stage(rows_of("dead", 1))
    handle = life.handle
    roll_plan.ROLL_CHUNKS = 4
    for job in roll_plan.plan(handle.journal.state, handle.now_ms(), NEVER):
        swap = run_roll(life.log.store_at, roll_task_of(handle, job), life.log.environment.nonce())
        if swap.partition == 1:  # its roller was killed between the two files
            life.log.store.delete(f"{handle.segment(1, swap.segment.name)}.log")
    leave_undone()
    life.write(PRODUCER, 6)
    life.housekeep()
    life.write(PRODUCER, 7)


class Writing:
    """The batches that are due, one after the other; the diary has those that were acknowledged."""

    def __init__(self, first: int, diary: Diary) -> None:
        self._first = first
        self._diary = diary

    @property
    def next(self) -> int:
        """The first batch that is not known to be in the log."""
        return self._first + len(self._diary.lines())

    def go_on(self, life: Life) -> None:
        """Write the next batch: where that has failed before, the same again."""
        batch = self.next
        life.write(PRODUCER, batch)
        self._diary.note(batch)


def deleted_topics(life: Life) -> None:
    """Make topics and delete them, so that the cluster's journal is long and has something to remove."""
    a_snapshot_is_due(life)
    for number in range(3):
        make_and_delete(life, f"gone{number}")


def make_and_delete(life: Life, name: str) -> None:
    """Make a topic with a file, and delete it."""
    other = Life(life.log.store.url, life.log.environment, name)
    other.create()
    if other.batches(PRODUCER) == 0:  # unless one that was killed has done it
        other.write(PRODUCER, 0)
    other.log.delete_topic(name)


def append(life: Life, writing: Writing) -> None:
    """Write the next batch."""
    writing.go_on(life)


def maintain(life: Life, _: Writing) -> None:
    life.maintain()


def housekeep(life: Life, _: Writing) -> None:
    """Do all that is due, and then what that has made due: what was given up goes at the next time."""
    life.housekeep()
    life.housekeep()


def delete_records(life: Life, writing: Writing) -> None:
    """Delete the older half of the rows, in the middle of a segment, and their files."""
    for p in range(PARTITIONS):
        end = life.handle.journal.state.partitions[p].high_watermark
        life.handle.submit(DeleteRecords(p, end // 2))
    housekeep(life, writing)


def tidy(life: Life, _: Writing) -> None:
    """Make and delete so many topics that the cluster's journal gets a snapshot, and tidy up."""
    for name in ("new0", "new1"):
        make_and_delete(life, name)
    life.tidy()


def all_of_it(life: Life, writing: Writing) -> None:
    """Write some batches, with all that is done in passing, and then do the rest of it by hand."""
    for _ in range(2):
        writing.go_on(life)
    life.maintain()
    housekeep(life, writing)


_ROLLS = {("link", "segment"), ("link", "index"), ("link", "entry")}
_FORGETS = {("unlink", "append file"), ("unlink", "segment"), ("unlink", "index")}
_TRIMS = {("unlink", "entry"), ("unlink", "snapshot"), ("unlink", "manifest")}
RETAIN_LITTLE = msgspec.structs.replace(AT_ONCE, retention_bytes=1300)

STEPS = {
    "append": Step(a_snapshot_is_due, append, {("link", "append file"), ("link", "entry"), ("link", "snapshot")}),
    "append and roll in passing": Step(unrolled, append, _ROLLS | {("link", "append file"), ("link", "manifest")}),
    "rolling": Step(unrolled, maintain, _ROLLS),
    "merging": Step(small_segments, maintain, _ROLLS),
    "removal of replaced files": Step(merged_segments, housekeep, _FORGETS | {("rename", "checkpoint")}),
    "retention": Step(small_segments, housekeep, _FORGETS | {("link", "entry")}, RETAIN_LITTLE),
    "delete-records": Step(small_segments, delete_records, _FORGETS | {("link", "entry")}),
    "removal of orphans": Step(files_of_the_dead, housekeep, _FORGETS | {("link", "entry")}),
    "trimming": Step(unrolled, housekeep, _TRIMS),
    "tidying up the cluster": Step(deleted_topics, tidy, {("unlink", "append file"), *_TRIMS}),
    "all of it": Step(small_segments, all_of_it, _ROLLS | _FORGETS | _TRIMS | {("link", "snapshot")}, RETAIN_LITTLE),
}
