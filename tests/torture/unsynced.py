"""Jepsen's experiment with NATS JetStream 2.12.1 and writes that were not flushed, made with this log.

Five nodes hold every row. A Producer with acks=all sends batches, and power fails at random moments: on one
of the nodes, or on all of them at once. A node then has any state that the model of a disk (`tests/disk`) allows: what
was flushed, and of the rest all, some or nothing. Files that were open there cannot be used any more. Writing goes on,
and at the end all rows are read. JetStream lost 131,418 of 930,005 acknowledged rows.

    python -m tests.torture.unsynced --rows 930005
"""

import argparse
import contextlib
import errno
import os
import random
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import pyspark_log
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.sync.follower import Follower
from pyspark_log_storage.errors import LogError
from pyspark_log_storage.stores import local, reserve
from pyspark_log_storage.stores.local import LocalStore
from tests.disk.disk import Call, Disk, State, Tree
from tests.disk.recorder import _REAL, Recorder
from tests.processes.conftest import MEMORY
from tests.torture.bit_flips import BATCH_ROWS, NODES, TOPIC, batch, create, lost_of

CALLS = 150
"""Power fails at one of so many calls that change files, or before the next batch."""
SHARE_OF_ALL = 0.5
"""So many failures concern all nodes."""
SHARE_OF_WORST = 0.5
"""So many leave what was flushed, and nothing else."""
RESERVE_BYTES = 4096
ROUNDS_S = 0.05
SETTINGS = {"acks": "all", "delivery.timeout.ms": 500, "request.timeout.ms": 100}
"""Those of the Producer that are not its defaults: a batch of which too few nodes have the file is given up soon."""
FAILED_MAX = 10
"""After so many batches in succession that fail, the log is lost."""


def main() -> None:
    """Print a line, and another one of the log without its flushes if that is wanted."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.unsynced")
    parser.add_argument("--rows", type=int, default=930_005, help="how many rows are acknowledged (default: 930005)")
    parser.add_argument("--seed", type=int, default=0, help="of the failures (default: 0)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        done = lose_unsynced(Path(folder), options.rows, options.seed)
    print(
        f"power failed {done.failures:,} times and dropped {done.dropped:,} changes: {done.acknowledged:,} rows "
        f"acknowledged, {done.lost:,} lost"
    )


class Outcome(NamedTuple):
    """What came of it."""

    acknowledged: int
    lost: int
    failures: int
    dropped: int
    """How many changes of names and files were not flushed, and were dropped at least in part."""


class Power(Recorder):
    """Five disks whose power fails, used by any number of threads."""

    def __init__(self, paths: dict[str, str], seed: int) -> None:
        super().__init__(paths)
        self.failures = self.dropped = 0
        self._dice = random.Random(seed)
        self._lock = threading.RLock()
        self._left: int | None = None
        """How many calls are made before power fails."""
        self._failed: Counter[str] = Counter()
        """How often the power of each disk has failed."""
        self._began: dict[tuple[int, str], int] = {}
        """That number when a thread began to change something that it has not flushed yet."""
        self._stale: set[int] = set()
        """The descriptors of files that were open on a disk whose power has failed."""

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record what this process does meanwhile, one call at a time."""
        for name in [name for name in dir(self) if name.startswith("_os_")]:
            setattr(self, name, self._alone(getattr(self, name)))
        with super().recording():
            yield

    def _alone(self, call: Any) -> Any:
        def alone(*arguments: Any, **more: Any) -> Any:
            with self._lock:
                if self._left == 0:
                    self.fail()
                return call(*arguments, **more)

        return alone

    def _record(self, disk: str, call: Call) -> None:
        """Let the disk know; the calls themselves would take more memory than there is."""
        self.disks[disk].apply(call)
        if call.kind != "flush":
            self._began.setdefault((threading.get_ident(), disk), self._failed[disk])
        if self._left:
            self._left -= 1

    def _before(self, place: object) -> None:
        """Nobody is killed here."""

    def _os_close(self, fd: int) -> None:
        self._stale.discard(fd)
        super()._os_close(fd)

    def _written(self, fd: int, data: Any, offset: int, write: Any) -> int:
        self._check(fd)
        return super()._written(fd, data, offset, write)

    def _os_ftruncate(self, fd: int, length: int) -> None:
        self._check(fd)
        super()._os_ftruncate(fd, length)

    def _os_posix_fallocate(self, fd: int, offset: int, length: int) -> None:
        self._check(fd)
        super()._os_posix_fallocate(fd, offset, length)

    def _flushed(self, fd: int, name: str) -> None:
        """Fail the flush of what a thread has changed before power failed, too: a machine forgets such a call."""
        place = self._open.get(fd)
        now = self._failed[place[0]] if place else 0
        self._check(fd, is_lost=place is not None and self._began.pop((threading.get_ident(), place[0]), now) != now)
        super()._flushed(fd, name)

    def _check(self, fd: int, *, is_lost: bool = False) -> None:
        if is_lost or fd in self._stale:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    def fail_soon(self) -> None:
        """Let power fail at one of the next calls."""
        with self._lock:
            self._left = self._dice.randint(1, CALLS)

    def fail_at_last(self) -> None:
        """Let power fail now, if it has not failed since `fail_soon`."""
        with self._lock:
            if self._left is not None:
                self.fail()

    def fail(self) -> None:
        """Let power fail on one of the disks, or on all."""
        self._left = None
        self.failures += 1
        names = list(self.disks)
        is_worst = self._dice.random() < SHARE_OF_WORST
        for name in names if self._dice.random() < SHARE_OF_ALL else [self._dice.choice(names)]:
            self._fail(name, is_worst=is_worst)

    def _fail(self, name: str, *, is_worst: bool) -> None:
        disk = self.disks[name]
        self._failed[name] += 1
        doubts, seen, before = disk.doubts(), disk.as_seen(), disk.tree()
        state: State = dict.fromkeys(doubts, 0)
        if not is_worst:
            state = {each: self._dice.randrange(options) for each, options in doubts.items()}
        self.dropped += sum(state[each] != seen[each] for each in doubts)
        after = disk.tree(state, self._dice)
        _change(self.paths[name], before, after)
        self.disks[name] = disk_of(after)
        self._stale |= {fd for fd, (where, _) in self._open.items() if where == name}
        self._open = {fd: place for fd, place in self._open.items() if place[0] != name}


def lose_unsynced(folder: Path, rows: int, seed: int = 0, *, flushes: bool = True) -> Outcome:
    """Write until so many rows are acknowledged, while power fails. Without `flushes` the product makes none."""
    paths = {str(number): str(folder / str(number)) for number in range(NODES)}
    for each in paths.values():
        os.mkdir(each)
    power = Power(paths, seed)
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(reserve, "RESERVE_BYTES", RESERVE_BYTES))
        stack.enter_context(power.recording())
        path = ",".join(f"{each}/log" for each in paths.values())
        create(path)
        if not flushes:
            stack.enter_context(mock.patch.object(local, "_flush_file"))
            stack.enter_context(mock.patch.object(local, "_flush_folder"))
        acknowledged = _write(power, path, rows)
        lost = lost_of(path, acknowledged, is_whole=flushes)
    return Outcome(len(acknowledged), lost, power.failures, power.dropped)


def _write(power: Power, path: str, rows: int) -> np.ndarray:
    """Write batch after batch, until too many fail in succession; return the values that were acknowledged."""
    acknowledged = np.arange(0)
    sent = failed = 0
    stop = threading.Event()
    keeper = threading.Thread(target=_keep, args=(path, stop))
    keeper.start()
    producer = pyspark_log.Producer(path, SETTINGS)
    while len(acknowledged) < rows and failed < FAILED_MAX:
        values = np.arange(sent, sent + min(BATCH_ROWS, rows - len(acknowledged)), dtype="<i8")
        sent += len(values)
        power.fail_soon()
        try:
            producer.send_batch(TOPIC, batch(values)).result()
        except LogError:
            failed += 1
        else:
            acknowledged, failed = np.append(acknowledged, values), 0
        power.fail_at_last()
    with contextlib.suppress(LogError):
        producer.close()
    stop.set()
    keeper.join()
    return acknowledged


def _keep(path: str, stop: threading.Event) -> None:
    """Copy what the nodes lack, as `pyspark-log node run` does on each of them."""
    log = Log([LocalStore(each) for each in path.split(",")], real_environment())
    followers: list[Follower] = []
    while not stop.wait(ROUNDS_S):
        with contextlib.suppress(LogError):
            log.open(create=False)
            followers = followers or [Follower(log, name) for name in log.cluster.state.nodes]
            for each in followers:
                with contextlib.suppress(LogError):
                    each.round()


def _change(folder: str, before: Tree, after: Tree) -> None:
    """Make the files of a folder those of another tree. A file that changes is another one then."""
    for path in sorted(before.keys() - after.keys(), reverse=True):
        _REAL["rmdir" if before[path] is None else "unlink"](f"{folder}/{path}")
    for path in sorted(after):
        content, there = after[path], before.get(path, ...)
        if content is there or content == there:
            continue
        if content is None:
            _REAL["mkdir"](f"{folder}/{path}")
            continue
        with contextlib.suppress(FileNotFoundError):
            _REAL["unlink"](f"{folder}/{path}")
        with open(f"{folder}/{path}", "wb") as file:
            file.write(content)


def disk_of(tree: Tree) -> Disk:
    """Return a disk that has a tree for certain."""
    disk, number = Disk(), 0
    for path, content in sorted(tree.items()):
        number += 1
        disk.apply(Call("mkdir" if content is None else "create", path))
        if content is not None:
            disk.apply(Call("write", number=number, data=content))
    for each in range(number + 1):
        disk.apply(Call("flush", number=each))
    return disk


if __name__ == "__main__":
    main()
