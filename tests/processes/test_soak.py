"""Maintenance, ten readers and three writers of one topic at the same time: the same rows for everybody, no error.

PYSPARK_LOG_SOAK_SECONDS says for how long; the numbers are printed (pytest -s).
"""

import os
import time

import msgspec
import pytest

from pyspark_log_coordinator.environment import real_environment
from tests.processes import soak_workers
from tests.processes.line_file import LineFile
from tests.processes.small_topic import AT_ONCE, PARTITIONS, TOPIC, TopicClient

SECONDS = float(os.environ.get("PYSPARK_LOG_SOAK_SECONDS", "10"))
WRITERS = ("a", "b", "c")
FOLLOWERS, READERS = 7, 3
MAINTAINERS = 2
FILES_STAY_MS = 5_000
CONFIG = msgspec.structs.replace(AT_ONCE, file_delete_delay_ms=FILES_STAY_MS, orphan_retention_ms=FILES_STAY_MS)


@pytest.mark.timeout(SECONDS + 300)
@pytest.mark.usefixtures("small_constants")
def test_all_at_once_see_the_same_rows_without_an_error(fork_server, folder):
    root, stop, end = str(folder / "root"), str(folder / "stop"), str(folder / "end")
    client = TopicClient(root)
    client.create(CONFIG)
    progress = [str(folder / f"progress {i}") for i in range(FOLLOWERS)]
    followers = [fork_server.fork(soak_workers.follow, root, end, each) for each in progress]
    readers = [fork_server.fork(soak_workers.read_again_and_again, root, end) for _ in range(READERS)]
    maintainers = [fork_server.fork(soak_workers.maintain, root, stop) for _ in range(MAINTAINERS)]
    deleter = fork_server.fork(soak_workers.delete_what_was_read, root, stop, progress)
    writers = [fork_server.fork(soak_workers.write, root, name, stop) for name in WRITERS]
    everybody = [*writers, *maintainers, deleter, *followers, *readers]
    deadline = time.monotonic() + SECONDS
    while not any(each.has_ended() for each in everybody):
        if time.monotonic() > deadline and any(each.log_start for each in client.handle.journal.state.partitions):
            break
        time.sleep(0.1)
    LineFile(stop).append("stop")

    written = dict(zip(WRITERS, (each.result() for each in writers), strict=True))
    rounds = [each.result() for each in maintainers]
    deleted = deleter.result()
    LineFile(end).append("end")
    followed = [each.result() for each in followers]
    read = [each.result() for each in readers]

    batches = {name: count for name, (count, _) in written.items()}
    expected = {(name, p): count for name, count in batches.items() for p in range(PARTITIONS)}
    for each in followed:
        assert each.batches == expected
        assert each.digests == followed[0].digests
        assert each.rows == followed[0].rows
    assert all(reads > 0 for reads, _ in read)
    assert all(times > 0 for times in rounds)
    assert 0 < deleted <= followed[0].rows
    report = client.report()
    assert report.sound, report.findings
    before = count_objects(client)
    clean_up_later(root)
    assert client.rubbish() == []
    slowest = max(took for _, took in written.values())
    print(
        f"\n{SECONDS:.0f} s: {sum(batches.values()):,} batches, {followed[0].rows:,} rows, the same for {FOLLOWERS} "
        f"followers in {sum(each.micro_batches for each in followed):,} micro-batches; "
        f"{sum(reads for reads, _ in read):,} batch reads, {sum(lost for _, lost in read)} more met deleted rows; "
        f"{sum(rounds):,} rounds of upkeep; {deleted:,} rows deleted; {client.handle.journal.number:,} entries, "
        f"{before:,} objects, {count_objects(client):,} when tidied up; slowest write {slowest:.2f} s"
    )


def clean_up_later(root: str) -> None:
    """Let a process clean up whose clock is so far ahead that everything is due; orphans are by the third time."""
    for times in range(1, 4):
        ahead_ms = 2 * FILES_STAY_MS * times
        now_ms = real_environment().now_ms() + ahead_ms
        client = TopicClient(root, msgspec.structs.replace(real_environment(), now_ms=lambda now_ms=now_ms: now_ms))
        client.maintain()
        client.clean_up_topic()
        client.clean_up_cluster()


def count_objects(client: TopicClient) -> int:
    """Return how many objects the topic has."""
    return sum(1 for _ in client.log.store.list(f"topics/{TOPIC}/"))
