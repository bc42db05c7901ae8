"""What the processes of these tests do. The fork_server imports this, so that each is warm when it begins."""

import os
import shutil
import tempfile

import msgspec

from pyspark_log_coordinator.sync.follower import Follower
from pyspark_log_storage.errors import LogError
from tests.processes.keyed_topic import KeyedClient
from tests.processes.line_file import LineFile
from tests.processes.small_topic import PARTITIONS, TopicClient, error_of, make_constants_small, seeded
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


def write_suspended(root: str, suspend_at: SuspendAt, producer: str, batch: int) -> str:
    """Write a batch, and be suspended at a call; return what came of it."""
    make_constants_small()
    client = TopicClient(root)
    with watched(suspend_at, (*CHANGES, *READS)):
        return told(error_of(lambda: client.write(producer, batch)))


def maintain_suspended(root: str, suspend_at: SuspendAt) -> str:
    """Do all upkeep, and be suspended at a call; return what came of it."""
    make_constants_small()
    client = TopicClient(root)

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
