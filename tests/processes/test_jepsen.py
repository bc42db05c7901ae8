"""Jepsen's questions, asked of real processes on three nodes: writers, readers and a keeper of the nodes are killed and
stopped, and nodes are taken away and brought back, in any order.

Was a write lost that was acknowledged by all, or is it at other offsets than its writer was told? Is a row there twice?
Do two readers, or a reader and the log, differ about an offset? Did a reader see a row that nobody sent? Did what a
reader was shown ever go back? All write down what they see, and the checker of histories answers.

PYSPARK_LOG_SOAK_SECONDS says for how long; the numbers are printed (pytest -s).
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.history.checker import check
from tests.history.events import Read, Row, read_history
from tests.history.recorder import Recorder
from tests.processes import jepsen_workers
from tests.processes.fork_server import ForkServer, Processes, Worker
from tests.processes.line_file import LineFile
from tests.processes.nodes import NODES, Nodes
from tests.processes.small_topic import AT_ONCE, PARTITIONS, TOPIC, TopicClient, rows_of

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
    stop, end, histories = (str(folder / name) for name in ("stop", "end", "histories"))
    progress_paths = {name: str(folder / name) for name in (*ALL, ONE)}

    def writer(name: str, acks: str) -> Callable[[ForkServer], Worker]:
        return lambda fork_server: fork_server.fork(
            jepsen_workers.write, nodes.root, name, acks, progress_paths[name], histories, stop
        )

    processes = Processes(
        fork_server,
        {name: writer(name, "all") for name in ALL}
        | {ONE: writer(ONE, "1"), "keeper": lambda fork_server: fork_server.fork(jepsen_workers.keep, nodes.root, end)}
        | {
            f"reader {n}": lambda fork_server: fork_server.fork(jepsen_workers.read, nodes.root, histories, end)
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
    record_all(client, histories)
    assert check(read_history(Path(histories).iterdir())) == []
    written = {name: LineFile(path).lines() for name, path in progress_paths.items()}
    assert all(len(written[name]) > len(FAULTS) for name in ALL), "they hardly wrote"
    there = client.rows_there(ONE)
    whole = [n for n in range(len(written[ONE])) if all(set(rows_of(ONE, n)[p]) <= set(there[p]) for p in there)]
    assert len(whole) > len(written[ONE]) / 2, "an election cuts few batches of acks=1"
    epochs = [each.leader_epoch for each in client.handle.journal.state.partitions]
    assert min(epochs) > 0, "nobody else ever led"
    report = client.report()
    assert report.sound, report.findings
    batches = {name: len(lines) for name, lines in written.items()}
    print(
        f"\n{dict(happened)}; batches {batches}, tried again "
        f"{tried_again}, of acks=1 {written[ONE].count('lost')} lost; leader epochs {epochs}; "
        f"polls {[polls for polls, _ in seen]}, of which failed {[failed for _, failed in seen]}"
    )


def record_all(client: TopicClient, histories: str) -> None:
    """Write down all rows that are in the log."""
    history, rows = Recorder(histories, "last"), []
    began = history.now()
    for p in range(PARTITIONS):
        start, values = client.read(p)
        rows += [Row(p, offset, value.decode()) for offset, value in enumerate(values, start)]
    history.add(Read(history.who, began, history.now(), TOPIC, rows))
