"""SIGKILL at random of all who use a compacted topic: on one node and on three, of which one at a time is away.

Its newest rows are always those that were acknowledged, a row that is left never changes, whoever reads sees no older
row of a key after a newer one, and no file is left that nothing needs.

PYSPARK_LOG_SOAK_SECONDS says for how long; the numbers are printed (pytest -s).
"""

import os
import random
import signal
import time
from collections import Counter
from functools import partial

import msgspec
import pytest

from tests.processes import compaction_workers
from tests.processes.compaction_workers import ACKNOWLEDGED, ONCE, SENT, Followed
from tests.processes.fork_server import Processes
from tests.processes.keyed_topic import (
    COMPACTED,
    KeyedClient,
    Row,
    keyed,
    newest_of,
    scanned,
    states,
    written,
)
from tests.processes.line_file import LineFile
from tests.processes.nodes import NODES, Nodes
from tests.processes.small_topic import PARTITIONS, rows_of
from tests.processes.steps import PRODUCER

SECONDS = float(os.environ.get("PYSPARK_LOG_SOAK_SECONDS", "3"))
SEED = 20_261_126
KILLS_BETWEEN_CHECKS = 12

pytestmark = [pytest.mark.usefixtures("small_constants"), pytest.mark.timeout(SECONDS * 2 + 300)]


def test_processes_that_write_compact_and_read_are_killed_at_random_and_the_newest_rows_are_always_right(
    fork_server, folder
):
    root, progress, looks, stop = (str(folder / name) for name in ("root", "progress", "looks", "stop"))
    KeyedClient(root).create()
    begin = {
        "writer": lambda server: server.fork(compaction_workers.write, root, PRODUCER, progress, stop),
        "reader": lambda server: server.fork(compaction_workers.look, root, {PRODUCER: progress}, looks, stop),
        "consumer": lambda server: server.fork(compaction_workers.follow, root, stop),
    }
    for number in range(2):
        begin[f"compactor {number}"] = lambda server: server.fork(compaction_workers.compact, root, stop)
    dice, kills, compacted, deadline = random.Random(SEED), Counter(), 0, time.monotonic() + SECONDS
    while not kills or time.monotonic() < deadline:
        processes = Processes(fork_server, begin)
        for _ in range(KILLS_BETWEEN_CHECKS):
            time.sleep(dice.uniform(0, 0.06))
            victim = dice.choice(list(begin))
            processes.kill(victim)
            kills[victim] += 1
        processes.check()
        for name in dice.sample(list(begin), len(begin)):
            assert processes.workers[name].kill() == -signal.SIGKILL, processes.workers[name].output()
            kills[name] += 1
        client = KeyedClient(root)
        batches = client.check(PRODUCER, len(LineFile(progress).lines()))
        client.clean_up()
        assert client.rubbish() == []
        client.check(PRODUCER, batches)
        compacted = sum(each.compactions for each in client.handle.partitions)
        # What was written, and not acknowledged, is written again.
    seen = Counter(LineFile(looks).lines())
    print(f"\n{kills.total()} kills, {dict(kills)}; {batches} batches, {compacted} compactions; reads {dict(seen)}")
    assert min(batches, compacted, seen["seen"]) > kills.total() / 10, "they hardly lived"


ALL = ("a", "b")
"""Producers whose batches have ids."""
REPLICATED = msgspec.structs.replace(
    COMPACTED,
    min_insync_replicas=2,
    delete_retention_ms=86_400_000,
    file_delete_delay_ms=5_000,
    orphan_retention_ms=10**9,
    replica_lag_time_max_ms=600,
)


def test_on_three_nodes_kills_and_nodes_that_go_and_replicas_that_move_change_nothing_of_the_newest_rows(
    fork_server, folder
):
    nodes = Nodes(folder, journals=3, config=REPLICATED)
    root, looks, stop, end = nodes.root, *(str(folder / name) for name in ("looks", "stop", "end"))
    progress = {name: str(folder / name) for name in (*ALL, ONCE)}
    begin = {name: _writer(root, name, progress[name], stop) for name in ALL}
    begin[ONCE] = lambda server: server.fork(compaction_workers.produce, root, ONCE, progress[ONCE], stop)
    begin["keeper"] = lambda server: server.fork(compaction_workers.keep, root, end)
    of_all = {name: progress[name] for name in ALL}
    compact, look, follow = (
        partial(each, nodes_go=True)
        for each in (compaction_workers.compact, compaction_workers.look, compaction_workers.follow)
    )
    begin["mover"] = lambda server: server.fork(compaction_workers.move, root, stop)
    begin["compactor"] = lambda server: server.fork(compact, root, end)
    begin["reader"] = lambda server: server.fork(look, root, of_all, looks, end)
    begin["consumer"] = lambda server: server.fork(follow, root, end)
    processes = Processes(fork_server, begin)
    survivor = fork_server.fork(follow, root, end)
    dice, kills, deadline = random.Random(SEED), Counter(), time.monotonic() + SECONDS
    while not kills or time.monotonic() < deadline:
        for node in dice.sample([*NODES, None], len(NODES) + 1):
            if node:
                nodes.take_away(node)
            for _ in range(dice.randrange(1, 6)):
                time.sleep(dice.uniform(0, 0.1))
                victim = dice.choice(list(begin))
                processes.kill(victim)
                kills[victim] += 1
            if node:
                nodes.bring_back(node)
            time.sleep(dice.uniform(0, 0.4))
            processes.check()
    LineFile(stop).append("stop")
    for name in (*ALL, ONCE, "mover"):
        processes.workers[name].result()
    for node in NODES:
        nodes.fill_up(node)
    LineFile(end).append("end")
    for name in ("keeper", "compactor", "reader"):
        processes.workers[name].result()
    followed = [survivor.result(), processes.workers["consumer"].result()]
    for node in NODES:
        nodes.fill_up(node)
    nodes.check_all_are_equal(*NODES)

    client = KeyedClient(root)
    report = client.report()
    assert report.sound, report.findings
    log = _Log(client)
    for name in ALL:
        outcomes = [
            msgspec.json.decode(line, type=dict[int, tuple[int, int]]) for line in LineFile(progress[name]).lines()
        ]
        log.check_all(name, outcomes)
    log.check_once(LineFile(progress[ONCE]).lines())
    for each in followed:
        log.check_followed(each)
    compacted = [each.compactions for each in client.handle.partitions]
    seen = Counter(LineFile(looks).lines())
    batches = {name: len(LineFile(path).lines()) for name, path in progress.items()}
    print(
        f"\n{kills.total()} kills, {dict(kills)}; lines of progress {batches}; compactions {compacted}, leader epochs "
        f"{[each.leader_epoch for each in client.handle.partitions]}; reads {dict(seen)}; polls that failed "
        f"{[each.failed for each in followed]}"
    )
    assert min(compacted) > 5, "hardly anything was compacted"
    assert seen["seen"] > 0


def _writer(root, name, progress, stop):
    return lambda server: server.fork(compaction_workers.write, root, name, progress, stop)


class _Log:
    """What is in the log at the end, by partition and offset."""

    def __init__(self, client: KeyedClient) -> None:
        self._client = client
        self._rows: dict[int, dict[int, Row]] = {p: {} for p in range(PARTITIONS)}
        for p, offset, row in scanned(client.root):
            self._rows[p][offset] = row
        self._newest = states(scanned(client.root, latest=True))
        for p, partition in enumerate(client.handle.partitions):
            offsets = list(self._rows[p])
            assert offsets == sorted(offsets)
            assert set(range(partition.compacted_end, partition.high_watermark)) <= set(offsets)

    def _of(self, producer: str, p: int) -> dict[int, Row]:
        begin = b"%s/" % producer.encode()
        return {offset: row for offset, row in self._rows[p].items() if row.key.startswith(begin)}

    def _newest_of(self, producer: str, p: int) -> dict[bytes, bytes]:
        begin = b"%s/" % producer.encode()
        return {key: value for key, value in self._newest[p].items() if key.startswith(begin)}

    def check_all(self, producer: str, outcomes: list[dict[int, tuple[int, int]]]) -> None:
        """Hold that each batch of a producer is there once, where it was told, as far as it is not superseded."""
        assert self._client.batches(producer) == len(outcomes) > 3
        for p, names in written(producer, len(outcomes)).items():
            there = self._of(producer, p)
            order = {row: number for number, row in enumerate(names)}
            places = [order[row] for row in there.values()]
            assert places == sorted(set(places)), f"partition {p}: rows of {producer} are there twice, or out of order"
            assert self._newest_of(producer, p) == newest_of(names)
            newest = {row.key: row for row in names}
            assert set(newest.values()) <= set(there.values()), "rows that delete their key stay for a day"
            for batch, told in enumerate(outcomes):
                if p in told:
                    rows = [keyed(name) for name in rows_of(producer, batch)[p]]
                    assert all(there.get(at, row) == row for at, row in enumerate(rows, told[p][0]))
                    assert {at for at, row in there.items() if row in rows} <= set(range(*told[p]))

    def check_once(self, outcomes: list[str]) -> None:
        """Hold that a batch without an id is there if it was acknowledged, and whole or not at all if it was not.

        One that was not may come late: others find it in the inbox of the journal, when its process is dead.
        """
        sent = [int(line.split()[1]) for line in outcomes if line.startswith(SENT)]
        acknowledged = {int(line.split()[1]) for line in outcomes if line.startswith(ACKNOWLEDGED)}
        assert len(acknowledged) > 3
        of = {p: self._of(ONCE, p) for p in range(PARTITIONS)}
        newest = {p: {row.key: (offset, row) for offset, row in rows.items()} for p, rows in of.items()}
        for batch in sent:
            rows = {p: [keyed(name) for name in names] for p, names in rows_of(ONCE, batch).items()}
            begins = {
                p: next((at - rows[p].index(row) for at, row in of[p].items() if row in rows[p]), None) for p in rows
            }
            if batch not in acknowledged and set(begins.values()) == {None}:
                continue
            for p, begin in begins.items():
                for number, row in enumerate(rows[p]):
                    offset, newer = newest[p].get(row.key, (-1, row))
                    assert offset >= (begin or 0) + number, f"batch {batch} is there in part: {row} is missing"
                    other = (newer.timestamp - rows[p][0].timestamp) // 1000 + batch
                    assert not (batch in acknowledged and other in acknowledged and other < batch), newer
        for p in range(PARTITIONS):
            assert self._newest_of(ONCE, p) == newest_of(row for _, row in newest[p].values())

    def check_followed(self, followed: Followed) -> None:
        """Hold that a consumer saw the newest row of each key."""
        for p, state in followed.state.items():
            assert state == {row.key: row for row in self._rows[p].values()}
