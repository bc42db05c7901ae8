"""Jepsen's experiment with NATS JetStream 2.12.1, of December 2025, made with this log.

Five nodes hold every row. After each batch a bit of a file is flipped, of rows or of journals, on one node or on one of
two. Nothing repairs them. At the end all rows are read. A damaged node leads, until another is elected.
JetStream lost 679,153 of 1,367,069 acknowledged rows where bits were flipped on one of five nodes.

    python -m tests.torture.bit_flips --rows 1367069
"""

import argparse
import contextlib
import os
import random
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import pyspark_log
from pyspark_log_storage import layout
from pyspark_log_storage.errors import LogError
from tests.processes.conftest import MEMORY
from tests.support.command_line import CommandLine

NODES = 5
TOPIC, PARTITIONS = "t", 1
BATCH_ROWS = 1_000
SHARE_BY_SIZE = 0.5
"""So many bits are flipped in files chosen by their size, which are those of rows; the others in any file."""
CONFIG = ["--config", "min.insync.replicas=3"]


def main() -> None:
    """Print a line for one damaged node, and one for two."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.bit_flips")
    parser.add_argument("--rows", type=int, default=1_367_069, help="how many rows are sent (default: 1367069)")
    parser.add_argument("--seed", type=int, default=0, help="of the flips (default: 0)")
    options = parser.parse_args()
    for damaged in (1, 2):
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
            sent, acknowledged, flips, lost = flip_bits(Path(folder), options.rows, damaged, options.seed)
        print(
            f"{damaged} of {NODES} nodes, {flips:,} bits: {sent:,} rows, {acknowledged:,} acknowledged, {lost:,} lost"
        )


def flip_bits(folder: Path, rows: int, damaged: int, seed: int) -> tuple[int, int, int, int]:
    """Return how many rows were sent and acknowledged, how many bits were flipped, and how many rows were lost."""
    nodes = [folder / str(number) for number in range(NODES)]
    path = ",".join(map(str, nodes))
    create(path)
    dice, flips = random.Random(seed), 0
    acknowledged = np.arange(0)
    with pyspark_log.Producer(path, {"acks": "all"}) as producer:
        for values in np.array_split(np.arange(rows, dtype="<i8"), -(-rows // BATCH_ROWS)):
            error = producer.send_batch(TOPIC, batch(values)).exception()
            assert error is None or isinstance(error, LogError), error
            acknowledged = acknowledged if error else np.append(acknowledged, values)
            flips += flip_one(dice, nodes[dice.randrange(damaged)])
    return rows, len(acknowledged), flips, lost_of(path, acknowledged)


def create(path: str) -> None:
    """Create a log on five nodes, with its journals on all of them, and a topic."""
    command = CommandLine(Path(path))
    command.run("cluster", "create", "--journal-nodes", path)
    command.run("topics", "create", TOPIC, "--partitions", PARTITIONS, "--replication-factor", NODES, *CONFIG)


def lost_of(path: str, acknowledged: np.ndarray, *, is_whole: bool = True) -> int:
    """Read all rows, of which each is there once; return how many of those that were acknowledged are not.

    If the log is not expected to be whole, rows behind an error count as lost.
    """
    there = [np.arange(0)]
    with contextlib.nullcontext() if is_whole else contextlib.suppress(LogError):
        for each in pyspark_log.scan(path, TOPIC, columns=["value"]):
            values = each.column("value").cast(pa.binary(8)).buffers()[1]
            there.append(np.frombuffer(values, "<i8")[: each.num_rows])
    found = np.concatenate(there)
    assert len(np.unique(found)) == len(found), "a row is there twice"
    return len(np.setdiff1d(acknowledged, found))


def batch(values: np.ndarray) -> pa.RecordBatch:
    """Return rows whose values are these numbers, of eight bytes each."""
    column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(values), [None, pa.py_buffer(values.tobytes())])
    return pa.record_batch({"value": column.cast(pa.binary())})


def flip_one(dice: random.Random, node: Path) -> int:
    """Flip a bit of a file of a node; return 1, or 0 if the file has gone meanwhile or is empty."""
    files = [Path(folder, name) for folder, _, names in os.walk(node) for name in names]
    files = [each for each in files if each.name != layout.MARKER and ".tmp" not in each.parts]
    try:
        by_size = dice.random() < SHARE_BY_SIZE
        (path,) = dice.choices(files, [each.stat().st_size for each in files] if by_size else None)
        with path.open("r+b") as file:
            file.seek(dice.randrange(os.fstat(file.fileno()).st_size))
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1 << dice.randrange(8)]))
    except (FileNotFoundError, ValueError, IndexError):
        return 0
    return 1


if __name__ == "__main__":
    main()
