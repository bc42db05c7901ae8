"""Jepsen's questions, asked of real processes on three nodes: writers, readers and a keeper of the nodes are killed and
stopped, and nodes are taken away and brought back, in any order.

Was a write lost that was acknowledged by all, or is it at other offsets than its writer was told? Is a row there twice?
Do two readers, or a reader and the log, differ about an offset? Did a reader see a row that was never committed? Did
what a reader was shown ever go back?

PYSPARK_LOG_SOAK_SECONDS says for how long; the numbers are printed (pytest -s).
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from tests.processes import jepsen_workers
from tests.processes.fork_server import ForkServer, Processes, Worker
from tests.processes.line_file import LineFile
from tests.processes.nodes import NODES, Nodes
from tests.processes.small_topic import AT_ONCE, PARTITIONS, TopicClient, Values, rows_of, rows_of_all

SECONDS = float(os.environ.get("PYSPARK_LOG_SOAK_SECONDS", "5"))
SEED = 20_260_117
CONFIG = msgspec.structs.replace(
    AT_ONCE,
    min_insync_replicas=2,
    file_delete_delay_ms=5_000,
    orphan_retention_ms=10**9,
    replica_lag_time_max_ms=600,
)
ALL = ("all-1", "all-2")
"""Writers with acks=all."""
ONE = "one"
"""A writer with acks=1: an election may cut its rows, and nothing else may happen to them."""
READERS = 2


FAULTS = [(with_node, what) for with_node in (*NODES, None) for what in ("", "stop", "kill") if with_node or what]


def inject_faults(processes: Processes, nodes: Nodes, dice: random.Random) -> Counter[str]:
    """Stop, kill, and take nodes away, one at a time; return what happened how often."""
    happened: Counter[str] = Counter()
    killable = [*ALL, ONE, "keeper"]
    end = time.monotonic() + SECONDS
    while not happened or time.monotonic() < end:
        for node, what in dice.sample(FAULTS, len(FAULTS)):
            sleeper = processes.workers[dice.choice(list(processes.workers))]
            if what == "stop":
                sleeper.signal(signal.SIGSTOP)
            if node:
                nodes.take_away(node)
            time.sleep(dice.uniform(0.1, 0.6))
            if what == "kill":
                for name in dice.sample(killable, 2):
                    processes.kill(name)
            if node:
                nodes.bring_back(node)
            if what == "stop":
                time.sleep(dice.uniform(0, 0.2))  # so it may sleep while a node goes and comes back
                sleeper.signal(signal.SIGCONT)
            time.sleep(dice.uniform(0, 0.2))
            happened.update({what or "nothing else": 1, f"node {node}" if node else "no node": 1})
            processes.check()
    return happened


@pytest.mark.timeout(SECONDS + 300)
def test_no_fault_of_processes_and_nodes_loses_an_acknowledged_row_or_shows_another_log(fork_server, folder):
    nodes = Nodes(folder, journals=3, config=CONFIG)
    stop, end, progress_paths = (
        str(folder / "stop"),
        str(folder / "end"),
        {name: str(folder / name) for name in (*ALL, ONE)},
    )

    def writer(name: str, acks: str) -> Callable[[ForkServer], Worker]:
        return lambda fork_server: fork_server.fork(
            jepsen_workers.write, nodes.root, name, acks, progress_paths[name], stop
        )

    processes = Processes(
        fork_server,
        {name: writer(name, "all") for name in ALL}
        | {ONE: writer(ONE, "1"), "keeper": lambda fork_server: fork_server.fork(jepsen_workers.keep, nodes.root, end)}
        | {
            f"reader {n}": lambda fork_server: fork_server.fork(jepsen_workers.read, nodes.root, end)
            for n in range(READERS)
        },
    )
    happened = inject_faults(processes, nodes, random.Random(SEED))
    LineFile(stop).append("stop")
    tried_again = {name: processes.workers[name].result() for name in (*ALL, ONE)}
    for node in NODES:
        nodes.fill_up(node)
    LineFile(end).append("end")
    processes.workers["keeper"].result()
    seen = [processes.workers[f"reader {n}"].result() for n in range(READERS)]
    for node in NODES:
        nodes.fill_up(node)
    nodes.check_all_are_equal(*NODES)

    client = TopicClient(nodes.root)
    log = {p: client.read(p)[1] for p in range(PARTITIONS)}
    for each in seen:
        assert each.rows == log, "a reader saw other rows, or at other offsets, than the log has"
    written = {name: LineFile(path).lines() for name, path in progress_paths.items()}
    for name in ALL:
        count = len(written[name])
        assert count > len(FAULTS), f"{name} hardly wrote"
        assert client.rows_there(name) == rows_of_all(name, count)
        told = check_offsets(name, written[name], log)
        assert told > count, "the offsets of most batches are known, in both partitions"
    check_rows_of_acks_one(client.rows_there(ONE), written[ONE])
    epochs = [each.leader_epoch for each in client.handle.journal.state.partitions]
    assert min(epochs) > 0, "nobody else ever led"
    report = client.report()
    assert report.sound, report.findings
    batches = {name: len(lines) for name, lines in written.items()}
    print(
        f"\n{dict(happened)}; batches {batches}, tried again "
        f"{tried_again}, of acks=1 {written[ONE].count('lost')} lost; leader epochs {epochs}; "
        f"polls {[each.polls for each in seen]}, of which failed {[each.failed for each in seen]}"
    )


def check_offsets(name: str, outcomes: list[str], log: Values) -> int:
    """Hold that the rows of each batch are at the offsets that its writer was told; return how many ranges it was told.

    The offsets of a batch that was repeated after its rows had been rolled are not known.
    """
    told = 0
    for n, outcome in enumerate(outcomes):
        for p, (start, end) in msgspec.json.decode(outcome, type=dict[int, tuple[int, int]]).items():
            assert log[p][start:end] == rows_of(name, n)[p], f"batch {n} of {name} is not at {start} of partition {p}"
            told += 1
    return told


def check_rows_of_acks_one(there: Values, outcomes: list[str]) -> None:
    """Hold that every row is there once at most, in order, and that of a batch that is not reported lost none misses.

    An election may cut the last batch that was acknowledged, after its writer has gone on: so much acks=1 allows.
    """
    for p, values in there.items():
        order = {value: n for n, value in enumerate(rows_of_all(ONE, len(outcomes))[p])}
        places = [order[value] for value in values]
        assert places == sorted(set(places)), f"partition {p}: rows are there twice, or out of order"
    whole = [n for n in range(len(outcomes)) if all(set(rows_of(ONE, n)[p]) <= set(there[p]) for p in there)]
    assert len(whole) > len(outcomes) / 2
