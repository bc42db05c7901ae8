"""`make torture`: real processes use a log with all that it has, and are attacked at random; the checker decides.

Half of the time the journals are on one node, half on all three. It stops at once, exits with 1, and keeps the history
and the disks, if anybody saw what a log must not do, a process ended by itself, or a node was not whole again in time.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from pyspark_log_coordinator.group.machine import AlterGroupConfig
from tests.history.checker import Violation, check
from tests.history.events import Commit, Compact, Event, Poll, Read, Retain, Send, read_history
from tests.history.recorder import LineFile, Recorder
from tests.support.coordinator.small_topic import AT_ONCE, PARTITIONS, TopicClient
from tests.torture import workers
from tests.torture.attacks import DISK_BYTES, Attacks
from tests.torture.mounted_disk import Disk
from tests.torture.nodes import NODES, Nodes
from tests.torture.processes import Call, Processes
from tests.torture.workers import COLUMNS, EXPIRING, GROUP, KEYED, TOPICS, TYPED

MEMORY = Path("/dev/shm")
RETENTION_MS = 20_000
CONFIG = msgspec.structs.replace(
    AT_ONCE,
    min_insync_replicas=2,
    file_delete_delay_ms=30_000,
    orphan_retention_ms=10**9,
    replica_lag_time_max_ms=600,
)
COMPACTED = msgspec.structs.replace(
    CONFIG,
    cleanup_policy="compact",
    min_cleanable_dirty_ratio=0.01,
    segment_format="parquet",
    parquet_max_lag_ms=2_000,
)
PARQUET = msgspec.structs.replace(CONFIG, segment_format="parquet")
EXPIRES = msgspec.structs.replace(CONFIG, retention_ms=RETENTION_MS)
PAUSE_S = 1.0
"""So long it takes at most until the next process is attacked, a node is left alone, or is attacked."""
SUSPENDED_S = 3.0
STAGED_S = 0.5
"""So long it takes at most until somebody writes a file of rows."""
CHECK_S = 10.0
"""How often the checker looks while the attacks go on."""
WRITERS = ("producer", "query")
QUICK = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1"}
SHOWN = 20


def main() -> int:
    """Torture two logs; return 1 if there is a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description="Torture a log.")
    parser.add_argument("--minutes", type=float, default=5, help="for how long (default: 5)")
    parser.add_argument(
        "--seed", type=int, default=time.time_ns() % 10**6, help="of the attacks (default: by the time)"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the disks are unmounted
    folder = Path(tempfile.mkdtemp(prefix="torture-", dir=MEMORY if MEMORY.is_dir() else None))
    violations: list[Violation] = []
    for journals in (1, len(NODES)):
        began = time.monotonic()
        log = folder / f"journals-on-{journals}"
        log.mkdir()
        dice = random.Random(f"{options.seed}/{journals}")
        found, counts = torture(log, dice, journals, options.minutes * 30)
        print(f"seed {options.seed}, journals on {journals}: {_said(counts)}; {len(found)} violations", flush=True)
        for each in found[:SHOWN]:
            print(f"    {each.rule}: {each.text}")
        violations += found
        if found:
            print(f"found after {time.monotonic() - began:.0f} s", flush=True)
            break
    if violations:
        print(f"the histories and the disks are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def torture(folder: Path, dice: random.Random, journals: int, seconds: float) -> tuple[list[Violation], Counter[str]]:
    """Torture one log; return what it did that it must not, and how much happened."""
    disks = {node: Disk(folder / "nodes" / node) for node in NODES}
    for disk in disks.values():
        disk.path.mkdir(parents=True)
    mounted = [disk for disk in disks.values() if disk.mount(DISK_BYTES)]
    counts: Counter[str] = Counter()
    found: list[Violation] = []
    try:
        nodes = Nodes(folder, journals, CONFIG)
        attacks = Attacks(nodes, disks if len(mounted) == len(NODES) else {}, dice, journals)
        try:
            _torture(folder, attacks, dice, seconds, counts)
        except AssertionError as error:
            found.append(Violation("ended", str(error)))
        events = read_history((folder / "histories").iterdir())
        counts += _counts(events)
        found += check(events)
        if found and mounted:
            shutil.copytree(folder / "nodes", folder / "disks")
    finally:
        for disk in mounted:
            disk.unmount()
    return found, counts


def _torture(folder: Path, attacks: Attacks, dice: random.Random, seconds: float, counts: Counter[str]) -> None:
    root, histories = attacks.nodes.root, str(folder / "histories")
    log = TopicClient(root).log
    for topic, config in ((KEYED, COMPACTED), (EXPIRING, EXPIRES)):
        log.create_topic(topic, PARTITIONS, config, replicas=[NODES] * PARTITIONS)
    log.create_topic(TYPED, PARTITIONS, PARQUET, replicas=[NODES] * PARTITIONS, columns=COLUMNS)
    history = Recorder(histories, "torture")
    history.add(Compact(history.who, 0, 0, KEYED))
    history.add(Retain(history.who, 0, 0, EXPIRING, RETENTION_MS))
    log.group(GROUP, create=True).submit(AlterGroupConfig(QUICK))
    stop, end = LineFile(str(folder / "stop")), LineFile(str(folder / "end"))
    writers, others = _clients(root, histories, str(folder))
    processes = Processes(folder, writers | others)
    attacks.processes = processes
    try:
        _attack(processes, attacks, dice, seconds, counts, histories)
        stop.append("stop")
        processes.wait(writers)
        attacks.make_whole()
        end.append("end")
        processes.wait(others)
    finally:
        processes.end()
    attacks.make_whole()
    for topic in TOPICS:
        workers.scan_once(root, history, topic, {})


def _attack(
    processes: Processes,
    attacks: Attacks,
    dice: random.Random,
    seconds: float,
    counts: Counter[str],
    histories: str,
) -> None:
    """Attack the nodes, one after another, and at any moment of that the processes. Stop at the first violation."""
    is_over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        chance = random.Random(dice.random())
        attacker = pool.submit(_attack_processes, processes, attacks, chance, is_over, counts)
        try:
            deadline, check_at = time.monotonic() + seconds, time.monotonic() + CHECK_S
            while time.monotonic() < deadline and not attacker.done():
                if time.monotonic() > check_at:
                    if _is_wrong(histories):
                        return
                    check_at = time.monotonic() + CHECK_S
                name = dice.choice(list(attacks.every))
                attacks.attack(name, dice.uniform(0, PAUSE_S * 3))
                counts[name] += 1
                time.sleep(dice.uniform(0, PAUSE_S))
        finally:
            is_over.set()
        attacker.result()


def _is_wrong(histories: str) -> bool:
    """Return whether there is a violation in what was written down so far, while all go on."""
    now = Recorder.now()  # whatever came before an event of an earlier time is written down
    return bool(check(each for each in read_history(Path(histories).iterdir()) if each.ended <= now))


def _clients(root: str, histories: str, folder: str) -> tuple[dict[str, Call], dict[str, Call]]:
    """Return what the writers do, which end at the stop, and the others, which go on to the end."""
    stop, end, progress = f"{folder}/stop", f"{folder}/end", f"{folder}/progress"
    writers: dict[str, Call] = {f"producer {n}": (workers.produce, root, histories, stop) for n in range(2)}
    writers["query"] = workers.query, root, "query", progress, histories, stop
    others: dict[str, Call] = {f"member {n}": (workers.consume, root, histories, end) for n in range(3)}
    others |= {f"reader of {topic}": (workers.follow, root, histories, topic, end) for topic in TOPICS}
    others["scanner"] = workers.look, root, histories, end
    others["maintainer"] = workers.maintain, root, histories, end
    others["keeper"] = workers.keep, root, end
    return writers, others


def _attack_processes(
    processes: Processes, attacks: Attacks, dice: random.Random, is_over: threading.Event, counts: Counter[str]
) -> None:
    """Kill processes, and stop some for a time. Fails where one has ended by itself."""
    while not is_over.wait(dice.uniform(0, PAUSE_S)):
        name, what = dice.choice(list(processes)), dice.choice(["killed", "stopped", "staged"])
        counts[what] += 1
        if what == "killed":
            processes.kill(name)
        elif what == "staged":
            _kill_staged(processes, attacks, dice.choice(NODES))
        else:
            processes.signal(name, signal.SIGSTOP)
            is_over.wait(dice.uniform(0, SUSPENDED_S))
            processes.signal(name, signal.SIGCONT)
        processes.check()


def _kill_staged(processes: Processes, attacks: Attacks, node: str) -> None:
    """Kill all writers when one of them has written a file of rows, and most likely before its entry."""
    before = attacks.append_files(node)
    deadline = time.monotonic() + STAGED_S
    while attacks.append_files(node) <= before:
        if time.monotonic() > deadline:
            return
    for name in processes:
        if name.startswith(WRITERS):
            processes.kill(name)


def _counts(events: list[Event]) -> Counter[str]:
    """Return how many rows were sent, acknowledged, refused and read, and how many commits there were."""
    counts: Counter[str] = Counter()
    sent: dict[str, str] = {}
    for event in events:
        match event:
            case Send():
                for row in event.rows:
                    if sent.get(row.value, "unknown") != "ok":
                        sent[row.value] = event.result
            case Poll() | Read():
                counts["rows read"] += len(event.rows)
            case Commit(result="ok"):
                counts["commits"] += 1
    counts["rows sent"] = len(sent)
    for result, name in (("ok", "acknowledged"), ("refused", "refused"), ("unknown", "unknown")):
        counts[name] = sum(each == result for each in sent.values())
    return counts


def _said(counts: Counter[str]) -> str:
    first = ("rows sent", "acknowledged", "refused", "unknown", "rows read", "commits")
    names = [*first, *sorted(set(counts) - set(first))]
    return ", ".join(f"{counts[name]:,} {name}" for name in names)


if __name__ == "__main__":
    sys.exit(main())
