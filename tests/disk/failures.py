"""Power failures: the states that each may leave, and whether the log keeps its promises in all of them.

After each call of a story, states of the disks are formed: of one disk while the others lose nothing, and of all. In
each the log is opened by a new process, which recovers every node, reads everything, and goes on.
"""

from __future__ import annotations

import bisect
import random
import shutil
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from pyspark_log_coordinator.audit import node_recovery, verify
from pyspark_log_storage.stores import local
from tests.disk.disk import Disk, State, Tree, digest
from tests.disk.recorder import replayed, write_tree
from tests.disk.story import KEYED, PARTITIONS, TOPIC, DiskStory, Promise, assert_kept
from tests.support.coordinator.fault_story import CONFIG, PRODUCER, Process, told
from tests.support.coordinator.keyed_topic import KeyedClient
from tests.support.coordinator.small_topic import AT_ONCE

AUDITED = 8
"""One of so many states is also cleaned up and audited."""
RESTARTED = 10_000
"""The number of the first process after a failure: its nonces differ from those of the story."""


class Failure(NamedTuple):
    """A power failure after a number of calls, which leaves the disks in some state."""

    calls: int
    trees: dict[str, Tree]
    failed: tuple[str, ...]
    """The disks that lost power."""


def failures(story: DiskStory, seed: int, samples: int, part: Container[int], without: str = "") -> Iterator[Failure]:
    """Yield failures after those numbers of calls that are in `part`: `samples` by chance each, and those at the edges.

    The flushes of the place `without` are left out: as if the product did not make them. If processes were killed in
    the story, the disks keep the changes of a folder's names in their order, as the guide demands.
    """
    names, in_order = list(story.folders), story.kills > 0
    for calls, disks in replayed(story.recorder.calls, names, without):
        if calls not in part:
            continue
        chance = random.Random(f"{seed} {calls}")
        # The disk that was just changed, if there are several: the states of the others were formed before.
        changed = story.recorder.calls[calls - 1][0] if calls else names[0]
        seen = {name: disk.tree() for name, disk in disks.items() if name != changed}
        for state in disks[changed].states(chance, samples, in_order=in_order):
            yield _failure(calls, disks, {changed: state}, seen, chance)
        if len(names) > 1:
            for _ in range(1 + samples):
                states = {name: _any(disk, chance, in_order=in_order) for name, disk in disks.items()}
                yield _failure(calls, disks, states, {}, chance)


def _any(disk: Disk, chance: random.Random, *, in_order: bool) -> State:
    return chance.choice(list(disk.states(chance, 1, in_order=in_order)))


def _failure(
    calls: int, disks: dict[str, Disk], states: dict[str, State], seen: dict[str, Tree], chance: random.Random
) -> Failure:
    trees = {name: disks[name].tree(state, chance) for name, state in states.items()}
    return Failure(calls, seen | trees, tuple(states))


def flushers(story: DiskStory) -> list[str]:
    """Return the places of the product that flushed something in a story."""
    return sorted({call.place for _, call in story.recorder.calls if call.kind == "flush"})


class Trial:
    """Tries the states of a story, each once, and counts them."""

    def __init__(self, story: DiskStory, folder: str) -> None:
        """`folder` is where the disks are made; it is empty."""
        self.story = story
        self.folder = folder
        self.distinct: set[bytes] = set()
        self.audited = 0
        self._tried: set[tuple[bytes, int]] = set()

    def run(self, failure: Failure) -> bool:
        """Open the log after a failure; return whether the state is new. Raises `AssertionError`, `LogError`."""
        before, after = promises_at(self.story, failure.calls)
        found = digest(failure.trees)
        if (found, before.calls) in self._tried:
            return False
        self._tried.add((found, before.calls))
        is_new = found not in self.distinct
        self.distinct.add(found)
        is_audited = len(self._tried) % AUDITED == 0
        self.audited += is_audited
        try:
            restart(self.story.kind, failure.trees, before, after, self.folder, is_audited=is_audited)
        except Exception as error:
            error.add_note(
                f"{self.story.kind}: power fails on {failure.failed} after call {failure.calls} "
                f"of the step after {before.step!r}"
            )
            raise
        return is_new

    def clear(self) -> None:
        """Remove the disks of a state that failed."""
        for each in Path(self.folder).iterdir():
            shutil.rmtree(each)


def promises_at(story: DiskStory, calls: int) -> tuple[Promise, Promise]:
    """Return what was promised when so many calls had been made, and what was promised next."""
    ends = [each.calls for each in story.promises]
    at = bisect.bisect_right(ends, calls)
    after = bisect.bisect_right(ends, ends[min(at, len(ends) - 1)])
    return story.promises[at - 1], story.promises[after - 1]


def restart(
    kind: str, trees: dict[str, Tree], before: Promise, after: Promise, folder: str, *, is_audited: bool = False
) -> None:
    """Open the log on disks in a state, hold the promises, and write and read new rows.

    If `is_audited`, clean up as well, which deletes and repairs files, and let the audit look at everything.
    """
    story = DiskStory(kind, folder)
    for url, tree in trees.items():
        write_tree(story.folders[url], tree)
    story._now = iter(range(10**7, 10**9))
    with told(), mock.patch.object(local, "_flush_file"), mock.patch.object(local, "_flush_folder"):
        process = Process(story, RESTARTED)
        # What was under way when nothing was promised yet is done again.
        if not before.topics:
            process.found()
        batches, keyed = assert_kept(process, before, after)
        if not before.topics:
            process.client.create(AT_ONCE if len(story.urls) == 1 else CONFIG)
        # Not the other topic: its deletion may have been cut in two.
        for topic in before.topics:
            for url in story.urls:
                _recover(story, process, topic, url)
        process.follow()
        process.write(batches)
        if KEYED in before.topics:
            KeyedClient(process.client.log, topic=KEYED).write(PRODUCER, keyed)
            keyed += 1
        if is_audited:
            process.clean_up()
        then = Promise(
            batches=batches + 1,
            settled=batches + 1,
            keyed=keyed,
            begins=before.begins,
            committed=before.committed,
            topics=before.topics | {TOPIC},
            has_group=before.has_group,
        )
        # Rows may expire now that were about to.
        begins = (10**9,) * PARTITIONS if "expire" in {before.step, after.step} else after.begins
        topics = then.topics | after.topics
        last = Promise(
            batches=batches + 1,
            settled=batches + 1,
            keyed=keyed,
            begins=begins,
            committed=after.committed,
            topics=topics,
        )
        assert_kept(Process(story, RESTARTED + 1), then, last)
        if is_audited:
            for topic in before.topics:
                report = verify.verify(process.client.log.topic(topic))
                assert report.sound, report.findings
            report = verify.verify_cluster(process.client.log)
            assert report.sound, report.findings
    for each in story.folders.values():
        shutil.rmtree(each)


def _recover(story: DiskStory, process: Process, topic: str, url: str) -> None:
    """Recover a topic on a node, as `pyspark-log recover` does after a restart."""
    for each in node_recovery.recover(story.open(url), topic, process.environment, process.client.log):
        assert each.damage is None, f"{url}: {each.damage}"
