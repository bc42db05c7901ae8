"""`python -m benchmarks.send_to_poll [LINGER_MS] [SECONDS]`: the steps of a row from `send` to `poll`, as a table.

A row waits for a batch, which is staged, committed and seen by a Consumer in another process; the table has the median
of each step over all rows, and below it what each batch costs. Both processes note the time before or after the
methods that are the steps, by the clock that they share. A Producer commits its batches in their order, so the n-th
times of all steps are those of its n-th batch.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.stopwatch import percentile
from pyspark_log import Consumer, Producer
from pyspark_log.clients.accumulator import Accumulator
from pyspark_log.clients.sender import Sender
from pyspark_log.opening import open_log
from pyspark_log.writing.staging import Staging
from pyspark_log_coordinator.journal.single_store import EntryLog
from pyspark_log_coordinator.log.log import TopicHandle
from pyspark_log_storage.stores.local import LocalStore, LocalWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Times = dict[str, float]
    Look = tuple[float, float, int]
    """Begin, end, and the newest entry after it."""

RATE = 1_000
WARM_UP_SECONDS = 2
POLL_MS = 1_000
STAMP_BYTES = 20
MILLI = 1_000
SENDER, COMMITTER = "pyspark_log sender", "pyspark_log committer"
STEPS = {
    "taken": "sent, until the sender takes the batch",
    "encoded": "its rows encoded and written",
    "staged": "their file flushed, named, and looked for",
    "begun": "wait for the commit before",
    "decided": "entry decided and encoded",
    "named": "entry written, flushed and named",
    "seen": "seen by a look of the Consumer",
    "given": "read and returned by `poll`",
}
"""The steps that a row waits for, in their order: what ends each, and its name in the table."""
AFTERWARDS = {
    "created": "folder of the entry flushed",
    "acknowledged": "no newer snapshot, state kept; acknowledged",
}
"""The steps that come after the entry has its name: the next batch waits for them."""


class Stamps:
    """When the steps of this process were done, in seconds, by their names."""

    def __init__(self) -> None:
        self.times: defaultdict[str, list[Any]] = defaultdict(list)

    def of_producer(self) -> None:
        """Note the steps of each batch in the Producers of this process."""
        self._wrap(Accumulator, "take", SENDER, after=self._taken)
        self._wrap(LocalWriter, "close", SENDER, before="encoded")
        self._wrap(Staging, "finish", SENDER, after="staged")
        self._wrap(Sender, "_commit", COMMITTER, before="begun")
        self._wrap(EntryLog, "propose", COMMITTER, before=self._decided)
        self._wrap(LocalStore, "_name", COMMITTER, after="named")
        self._wrap(LocalStore, "create", COMMITTER, after="created")
        self._wrap(Accumulator, "release", COMMITTER, before="acknowledged")

    def of_consumer(self) -> None:
        """Note the looks of the Consumers of this process: when each began and ended, and the newest entry after it."""
        plain = TopicHandle.refresh

        def refresh(handle: TopicHandle, *, polls: bool = False) -> Any:
            begin = time.monotonic()
            state = plain(handle, polls=polls)
            self.times["looks"].append((begin, time.monotonic(), handle.version))
            return state

        setattr(TopicHandle, "refresh", refresh)  # noqa: B010 -- mypy refuses an assignment

    def _taken(self, request: Any) -> None:
        if request is not None:
            self.times["taken"].append(time.monotonic())
            self.times["rows"].append(sum(len(batch) for batch in request.batches))

    def _decided(self, _: EntryLog, number: int, *__: object) -> None:
        self.times["decided"].append(time.monotonic())
        self.times["entries"].append(number)

    def _wrap(
        self,
        owner: type,
        method: str,
        thread: str,
        before: str | Callable[..., None] = "",
        after: str | Callable[[Any], None] = "",
    ) -> None:
        """Note when a method is called, or returns, in the thread of this name."""
        plain = getattr(owner, method)

        @functools.wraps(plain)
        def noted(*args: Any, **kwargs: Any) -> Any:
            if threading.current_thread().name != thread:
                return plain(*args, **kwargs)
            if callable(before):
                before(*args)
            elif before:
                self.times[before].append(time.monotonic())
            result = plain(*args, **kwargs)
            if callable(after):
                after(result)
            elif after:
                self.times[after].append(time.monotonic())
            return result

        setattr(owner, method, noted)


def measure(folder: Path, linger: int, seconds: int) -> tuple[list[Times], list[Times], list[Look]]:
    """Return when each row, and each batch, came to its steps, without those of the warm-up, and the looks."""
    path, topic, stored = str(folder / "log"), "paced", folder / "stamps"
    rows = (seconds + WARM_UP_SECONDS) * RATE
    open_log(path, create=True)
    with Producer(path) as producer:
        producer.partitions_for(topic)
    stamps = Stamps()
    stamps.of_consumer()
    arguments = [path, topic, str(linger), str(rows), str(RATE), str(stored)]
    sent: list[float] = []
    given: list[float] = []
    with (
        Consumer(path) as consumer,
        subprocess.Popen([sys.executable, "-m", "benchmarks.paced_sender", *arguments], stdout=subprocess.DEVNULL),
    ):
        consumer.assign(consumer.partitions(topic), "earliest")
        while len(sent) < rows:
            records = consumer.poll(POLL_MS)
            given += [time.monotonic()] * len(records)
            sent += [float((record.value or b"")[:STAMP_BYTES]) for record in records]
    batches = batches_of(json.loads(stored.read_text()), stamps.times["looks"])
    of_rows = itertools.chain.from_iterable([batch] * int(batch["rows"]) for batch in batches)
    every = [{**batch, "sent": at, "given": end} for batch, at, end in zip(of_rows, sent, given, strict=True)]
    begin = every[WARM_UP_SECONDS * RATE]["taken"]
    return every[WARM_UP_SECONDS * RATE :], [each for each in batches if each["taken"] > begin], stamps.times["looks"]


def batches_of(stamps: Mapping[str, Sequence[float]], looks: Sequence[Look]) -> list[dict[str, float]]:
    """Return when each batch came to its steps, and how many rows and which entry it has."""
    once = ("rows", "taken", "encoded", "staged", "begun", "acknowledged")
    found = [dict(zip(once, each, strict=True)) for each in zip(*(stamps[step] for step in once), strict=True)]
    versions = [version for _, _, version in looks]
    for batch in found:
        before = "begun"
        for step in ("decided", "named", "created"):  # snapshots have a name, too
            batch[step] = stamps[step][bisect.bisect(stamps[step], batch[before])]
            before = step
        batch["entry"] = stamps["entries"][bisect.bisect(stamps["decided"], batch["begun"])]
        batch["seen"] = looks[bisect.bisect_left(versions, batch["entry"])][1]
    return found


def main(linger: int = 0, seconds: int = 10) -> None:
    with tempfile.TemporaryDirectory(prefix="pyspark-log-") as folder:
        rows, batches, looks = measure(Path(folder), linger, seconds)
    print(f"linger.ms={linger}: {len(rows):,} rows in {len(batches):,} batches")
    print(f"{'':50}    p50       p99")
    _line("send to poll", [row["given"] - row["sent"] for row in rows])
    _print(rows, "sent", STEPS)
    print("of a batch, when its entry has its name")
    _print(batches, "named", AFTERWARDS)
    print("a look of the Consumer, and between two")
    pairs = [pair for pair in itertools.pairwise(looks) if pair[0][0] > batches[0]["taken"]]
    spent = {
        "that finds nothing": [end - begin for (_, _, known), (begin, end, version) in pairs if version == known],
        "that finds an entry": [end - begin for (_, _, known), (begin, end, version) in pairs if version > known],
        "from the end of one to the next": [begin - end for (_, end, _), (begin, _, _) in pairs],
    }
    for name, each in spent.items():
        _line(name, each)


def _print(found: Sequence[Times], begin: str, steps: Mapping[str, str]) -> None:
    before = begin
    for step, name in steps.items():
        _line(name, [each[step] - each[before] for each in found])
        before = step


def _line(name: str, seconds: Sequence[float]) -> None:
    print(f"  {name:48} {percentile(seconds, 50) * MILLI:6.2f} ms {percentile(seconds, 99) * MILLI:6.2f} ms")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
