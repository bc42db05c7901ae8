"""What the processes of these tests do. The fork_server imports this, so that each is warm when it begins."""

import functools
import os
import resource
import shutil
import tempfile

import msgspec

from pyspark_log_coordinator.journal import trimming
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_coordinator.sync.follower import Follower
from pyspark_log_storage.errors import LogError, OutcomeUnknown, StaleFile
from tests.processes.keyed_topic import KeyedClient
from tests.processes.line_file import LineFile
from tests.processes.small_topic import PARTITIONS, TopicClient, error_of, make_constants_small, rows_of, seeded
from tests.processes.steps import BEGIN_MS, LATER_MS, PRODUCER, STEPS, Writing
from tests.processes.system_calls import CHANGES, READS, BrokenFrom, Counter, DeathAt, SuspendAt, watched

NOBODY = 65534
"""A user without rights."""


def told(error: LogError | None) -> str:
    """Return what an error says, and "done" where there is none."""
    return "done" if error is None else f"{type(error).__name__}: {error}"


def warm_up() -> None:
    """Do everything once, so that what is imported or made at its first use is there in every worker."""
    make_constants_small()
    with tempfile.TemporaryDirectory() as folder:
        client = TopicClient(f"{folder}/root", seeded(BEGIN_MS))
        client.create()
        client.fill(PRODUCER, range(20))
        client.clean_up()
        client.check(PRODUCER, 20)
        compacted = KeyedClient(f"{folder}/compacted", seeded(BEGIN_MS))
        compacted.create()
        compacted.fill(PRODUCER, range(20))
        compacted.clean_up()
        compacted.check(PRODUCER, 20)


class Prepared(msgspec.Struct):
    """A step that is due, and what it comes to where nobody is killed: the calls that change the disk, in order."""

    template: str
    batches: int
    calls: list[tuple[str, str]]


def prepare(step: str, folder: str, names: tuple[str, ...] = CHANGES) -> Prepared:
    """Make a topic in which a step is due, and find out what the step does."""
    make_constants_small()
    template, copy = f"{folder}/template", f"{folder}/unharmed"
    client = STEPS[step].client(template, seeded(BEGIN_MS))
    client.create(STEPS[step].config)
    STEPS[step].prepare(client)
    batches = client.batches(PRODUCER)
    shutil.copytree(template, copy)
    make_constants_small()
    unharmed, calls = STEPS[step].client(copy, seeded(LATER_MS)), Counter()
    with watched(calls, names):
        STEPS[step].act(unharmed, Writing(batches, LineFile(f"{copy}.progress")))
    shutil.rmtree(copy)
    return Prepared(template, batches, calls.calls)


def die_in(step: str, root: str, batches: int, at: int, torn: bool) -> None:
    """Do a step, and be killed before its call number `at`, or in the middle of that."""
    make_constants_small()
    client = STEPS[step].client(root, seeded(LATER_MS))
    with watched(DeathAt(at, torn=torn)):
        STEPS[step].act(client, Writing(batches, LineFile(f"{root}.progress")))


def write_for_ever(root: str, progress: str) -> None:
    """Write batch after batch, from the first one on that is not known to be in the log."""
    make_constants_small()
    client, written = TopicClient(root), LineFile(progress)
    batch = len(written.lines())
    while True:
        try:
            client.write(PRODUCER, batch)
        except (StaleFile, OutcomeUnknown):
            continue  # cleaning up is frequent here; a batch that may be in the log is known by its producer
        written.append(batch)
        batch += 1


def maintain_for_ever(root: str) -> None:
    """Roll, merge, expire and clean up, as fast as it goes."""
    make_constants_small()
    client = TopicClient(root)
    while True:
        client.maintain()
        client.clean_up_topic()


def write_suspended(root: str, suspend_at: SuspendAt, producer: str, batch: int) -> str:
    """Write a batch, and be suspended at a call; return what came of it."""
    make_constants_small()
    client = TopicClient(root)
    with watched(suspend_at, (*CHANGES, *READS)):
        return told(error_of(lambda: client.write(producer, batch)))


def compact_suspended(root: str, suspend_at: SuspendAt) -> str:
    """Do all upkeep of a compacted topic, and be suspended at a call; return what came of it."""
    return maintain_suspended(root, suspend_at, KeyedClient)


def maintain_suspended(root: str, suspend_at: SuspendAt, made: type[TopicClient] = TopicClient) -> str:
    """Do all upkeep, and be suspended at a call; return what came of it."""
    make_constants_small()
    client = made(root)

    def act() -> None:
        client.maintain()
        client.clean_up_topic()

    with watched(suspend_at, (*CHANGES, *READS)):
        return told(error_of(act))


def look_suspended(root: str, suspend_at: SuspendAt) -> tuple[int, list[tuple[int, list[bytes]]]]:
    """Know the topic, look again, and be suspended at a call; return the newest entry, and all rows."""
    make_constants_small()
    client = TopicClient(root)
    handle = client.handle
    with watched(suspend_at, READS):
        handle.refresh()
    return handle.journal.number, [client.read(p) for p in range(PARTITIONS)]


def read_suspended(root: str, suspend_at: SuspendAt) -> tuple[int, list[bytes]] | str:
    """Read a partition, and be suspended at a call; return its rows, or the error."""
    make_constants_small()
    client = TopicClient(root)
    with watched(suspend_at, READS):
        try:
            return client.read(0)
        except LogError as error:
            return told(error)


def write_batches(root: str, producer: str, batches: int, progress: str) -> int:
    """Write so many batches, each until it is acknowledged; return how often one had to be written again."""
    make_constants_small()
    client, written, again = TopicClient(root), LineFile(progress), 0
    for batch in range(batches):
        while (error := error_of(functools.partial(client.write, producer, batch))) is not None:
            assert isinstance(error, (StaleFile, OutcomeUnknown)), error
            again += 1
        written.append(f"{producer} {batch}")
    return again


def trim_until(root: str, stop: str) -> int:
    """Trim the topic's journal as fast as it goes, until it is told to stop; return how many objects went."""
    make_constants_small()
    client, trimmed = TopicClient(root), 0
    handle = client.handle
    while not LineFile(stop).lines():
        trimmed += trimming.trim(handle.journal)
    return trimmed


def look_until(root: str, progress: str, stop: str) -> int:
    """Look at the topic again and again: what was acknowledged before a look is there; return how often."""
    make_constants_small()
    client, looks = TopicClient(root), 0
    handle = client.handle
    while not LineFile(stop).lines():
        acknowledged = [line.split() for line in LineFile(progress).lines()]
        least = sum(len(values) for who, batch in acknowledged for values in rows_of(who, int(batch)).values())
        state = handle.refresh()
        shown = sum(one.high_watermark for one in state.partitions)
        assert shown >= least, f"{shown} rows are shown, {least} were acknowledged before"
        looks += 1
    return looks


def follow_and_die(root: str, node: str, at: int, torn: bool) -> None:
    """Bring a node up to date, and be killed before the call number `at` that changes a disk, or in the middle."""
    client = TopicClient(root)
    with watched(DeathAt(at, torn=torn)):
        Follower(client.log, node).round()


def count_calls_of_following(root: str, node: str) -> list[tuple[str, str]]:
    """Bring a node up to date; return the calls that change a disk."""
    client, calls = TopicClient(root), Counter()
    with watched(calls):
        Follower(client.log, node).round()
    return calls.calls


def write_with_acks_one_suspended(root: str, suspend_at: SuspendAt, producer: str) -> str:
    """Write the first batch of a producer with acks=1, and be suspended at a call; return what came of it."""
    client = TopicClient(root)
    with watched(suspend_at, (*CHANGES, *READS)):
        return told(error_of(lambda: client.write(producer, 0, acks="1")))


class Failure(msgspec.Struct):
    """How a step ended on a broken disk: the error, if it did not succeed in spite of it, and how many calls failed."""

    error: str | None
    failed: int
    batches: int
    """How many batches are acknowledged after the disk was well again."""


def fail_in(step: str, root: str, batches: int, broken: BrokenFrom, names: tuple[str, ...]) -> Failure:
    """Do a step on a disk that breaks, and once more, in the same process, when it is well again."""
    make_constants_small()
    client, writing = STEPS[step].client(root, seeded(LATER_MS)), Writing(batches, LineFile(f"{root}.progress"))
    with watched(broken, names):
        error = error_of(lambda: STEPS[step].act(client, writing))
    for p in range(PARTITIONS):
        client.read(p)
    if error is not None:
        STEPS[step].act(client, writing)
    return Failure(None if error is None else told(error), broken.failed, writing.next)


def write_without_a_name(root: str, broken: BrokenFrom, names: tuple[str, ...]) -> str:
    """Write a batch that cannot be told from its repetition, on a disk that breaks; return what came of it."""
    make_constants_small()
    client = TopicClient(root, seeded(LATER_MS))
    with watched(broken, names):
        error = error_of(lambda: client.write("unnamed", 0, RetryPolicy(retries=3, retry_backoff_ms=1), named=False))
    return told(error)


def write_with_small_files(root: str, batch: int) -> str:
    """Write a batch while files may hardly grow, and once more when they may; return what was said first."""
    make_constants_small()
    client = TopicClient(root)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # bytes; Python ignores the signal, and gets EFBIG
    error = error_of(lambda: client.write(PRODUCER, batch))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    client.write(PRODUCER, batch)
    return told(error)


def write_without_permission(root: str, batch: int) -> str:
    """Write a batch where this process may only read; return what is said."""
    make_constants_small()
    client = TopicClient(root)
    folders = [folder for folder, _, _ in os.walk(root)] if os.geteuid() else []
    for folder in folders:
        os.chmod(folder, 0o500)
    os.seteuid(os.geteuid() or NOBODY)
    error = error_of(lambda: client.write(PRODUCER, batch))
    os.seteuid(os.getuid())
    for folder in folders:
        os.chmod(folder, 0o700)
    return told(error)
