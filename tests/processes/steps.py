"""The steps of a log's long client, one at a time: a topic in which the step is due, and what carries it out."""

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pyspark_log_coordinator.commit import inline_maintenance
from pyspark_log_coordinator.maintenance.roll_task import roll_task_of, run_roll
from pyspark_log_coordinator.model.partition import Partition
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.segments.retention import DeleteRecords
from tests.processes.keyed_topic import COMPACTED, KeyedClient
from tests.processes.line_file import LineFile
from tests.processes.small_topic import AT_ONCE, PARTITIONS, SNAPSHOT_EVERY, TopicClient, rows_of

NEVER = 10**9
KILLS = 8
PRODUCER = "q"
BEGIN_MS = 1_700_000_000_000
LATER_MS = BEGIN_MS + 1_000_000

Done = tuple[str, str]
"""A call of the operating system, and what kind of file it is about."""


class Step(msgspec.Struct):
    """What is prepared, what is done, and what that must come to, so that a test of it is one of this step."""

    prepare: Callable[[TopicClient], None]
    act: Callable[[TopicClient, "Writing"], None]
    does: set[Done]
    config: TopicConfig = AT_ONCE
    client: type[TopicClient] = TopicClient
    kills: int | None = None
    """At how many of its calls a process is killed, unless PYSPARK_LOG_EVERY_KILL is set; None: at each."""


_KINDS = {
    r"/\.tmp/": "temporary",
    r"/entries/": "entry",
    r"/snapshots/": "snapshot",
    r"/manifests/": "manifest",
    r"/append/": "append file",
    r"\.(log|parquet)$": "segment",
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
        (roll_plan, "INLINE_LAG_MS"),
        (inline_maintenance, "CLEAN_UP_EVERY_ENTRIES"),
    ):
        set_attribute(module, name, NEVER)


def a_snapshot_is_due(client: TopicClient) -> None:
    """Write until the next entry gets a snapshot, and older ones have been trimmed."""
    while client.handle.journal.number < 4 * SNAPSHOT_EVERY or (client.handle.journal.number + 1) % SNAPSHOT_EVERY:
        client.write(PRODUCER, client.batches(PRODUCER))


def unrolled(client: TopicClient) -> None:
    """Make more chunks than should be unrolled, and more entries and snapshots than are kept."""
    leave_undone()
    client.fill(PRODUCER, range(14))


def small_segments(client: TopicClient) -> None:
    """Make small segments that wait to be merged, and append files that wait to go."""
    leave_undone()
    roll_plan.ROLL_CHUNKS = 2
    client.fill(PRODUCER, range(11))


def files_of_the_dead(client: TopicClient) -> None:
    """Leave what killed tasks and rollers leave, old enough to go."""
    leave_undone()
    client.fill(PRODUCER, range(6))
    client.stage(rows_of("dead", 0))
    client.stage(rows_of("dead", 1))
    handle = client.handle
    roll_plan.ROLL_CHUNKS = 4
    for job in roll_plan.plan(handle.journal.state, handle.now_ms(), NEVER):
        swap = run_roll(client.log.store_at, roll_task_of(handle, job), client.log.environment)
        if swap.partition == 1:  # its roller was killed between the two files
            client.log.store.delete(f"{handle.segment(1, swap.segment.name)}.log")
    leave_undone()
    client.write(PRODUCER, 6)
    client.clean_up_topic()
    client.write(PRODUCER, 7)


def unfolded(client: TopicClient) -> None:
    """Make keyed segments, and after them a dense one and chunks, which wait to be folded."""
    leave_undone()
    client.fill(PRODUCER, range(6))
    client.maintain()
    roll_plan.ROLL_CHUNKS = 4
    client.fill(PRODUCER, range(6, 13))
    roll_plan.ROLL_CHUNKS = NEVER
    client.fill(PRODUCER, range(13, 15))
    assert all(each.keyed_segments and len(each.segments) > len(each.keyed_segments) for each in partitions(client))


def partitions(client: TopicClient) -> Sequence[Partition]:
    return client.handle.partitions


class Writing:
    """The batches to write, one after the other; `progress` has a line for each that was acknowledged."""

    def __init__(self, first: int, progress: LineFile) -> None:
        self._first = first
        self._progress = progress

    @property
    def next(self) -> int:
        """The first batch that is not known to be in the log."""
        return self._first + len(self._progress.lines())

    def go_on(self, client: TopicClient) -> None:
        """Write the next batch: where that has failed before, the same again."""
        batch = self.next
        client.write(PRODUCER, batch)
        self._progress.append(batch)


def what_is_left(root: Path) -> tuple[int, str]:
    """Return how many batches were acknowledged, and a digest of everything that has a name."""
    digest = hashlib.blake2b()
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.parent.name != ".tmp":
            digest.update(f"{path.relative_to(root)} {path.stat().st_size} ".encode() + path.read_bytes())
    return len(LineFile(f"{root}.progress").lines()), digest.hexdigest()


def deleted_topics(client: TopicClient) -> None:
    """Make topics and delete them, so that the cluster's journal is long and has something to remove."""
    a_snapshot_is_due(client)
    for number in range(3):
        make_and_delete(client, f"gone{number}")


def make_and_delete(client: TopicClient, name: str) -> None:
    """Make a topic with a file, and delete it."""
    other = TopicClient(client.log.store.url, client.log.environment, name)
    other.create()
    if other.batches(PRODUCER) == 0:  # unless one that was killed has done it
        other.write(PRODUCER, 0)
    other.log.delete_topic(name)


def append(client: TopicClient, writing: Writing) -> None:
    """Write the next batch."""
    writing.go_on(client)


def maintain(client: TopicClient, _: Writing) -> None:
    client.maintain()


def clean_up_topic(client: TopicClient, _: Writing) -> None:
    """Do all that is due, and then what that has made due: what was given up goes at the next time."""
    client.clean_up_topic()
    client.clean_up_topic()


def delete_records(client: TopicClient, writing: Writing) -> None:
    """Delete the older half of the rows, in the middle of a segment, and their files."""
    for p in range(PARTITIONS):
        end = client.handle.journal.state.partitions[p].high_watermark
        client.handle.submit(DeleteRecords(p, end // 2))
    clean_up_topic(client, writing)


def clean_up_cluster(client: TopicClient, _: Writing) -> None:
    """Make and delete so many topics that the cluster's journal gets a snapshot, and clean up."""
    for name in ("new0", "new1"):
        make_and_delete(client, name)
    client.clean_up_cluster()


def all_of_it(client: TopicClient, writing: Writing) -> None:
    """Write some batches, with all that is done in passing, and then do the rest of it by hand."""
    for _ in range(2):
        writing.go_on(client)
    client.maintain()
    clean_up_topic(client, writing)


_ROLLS = {("link", "segment"), ("link", "index"), ("link", "entry")}
_FORGETS = {("unlink", "append file"), ("unlink", "segment"), ("unlink", "index")}
_TRIMS = {("unlink", "entry"), ("unlink", "snapshot"), ("unlink", "manifest")}
_ALL = _ROLLS | _FORGETS | _TRIMS | {("link", "snapshot")}
RETAIN_LITTLE = msgspec.structs.replace(AT_ONCE, retention_bytes=1300)
COMPACT_AND_DELETE = msgspec.structs.replace(COMPACTED, cleanup_policy="compact,delete", retention_bytes=6000)

STEPS = {
    "append": Step(a_snapshot_is_due, append, {("link", "append file"), ("link", "entry"), ("link", "snapshot")}),
    "append and roll in passing": Step(unrolled, append, _ROLLS | {("link", "append file"), ("link", "manifest")}),
    "delete-records": Step(small_segments, delete_records, _FORGETS | {("link", "entry")}),
    "removal of orphans": Step(files_of_the_dead, clean_up_topic, _FORGETS | {("link", "entry")}),
    "cleaning up the cluster": Step(deleted_topics, clean_up_cluster, {("unlink", "append file"), *_TRIMS}),
    "all of it": Step(small_segments, all_of_it, _ALL, RETAIN_LITTLE),
    "compaction": Step(unfolded, maintain, _ROLLS, COMPACTED, KeyedClient, KILLS),
    "all of it, compacted": Step(unfolded, all_of_it, _ALL, COMPACT_AND_DELETE, KeyedClient, KILLS),
}
