"""Three nodes' disks, as the model of the replicas has them: what each node's folder says without the journal."""

from __future__ import annotations

from typing import NamedTuple

from pyspark_log_coordinator.model.partition import Partition
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication.truncation import divergence

NOTHING = -1
Row = tuple[int, int]
"""A row's leader epoch, and its number in the order in which rows were produced."""


class Disk(NamedTuple):
    """What a node's folder says."""

    rows: tuple[Row | None, ...] = ()
    """By offset; None where a row that the node lacks comes before one that it has."""

    @property
    def epochs(self) -> tuple[tuple[int, int], ...]:
        """The leader-epoch-checkpoint."""
        starts: dict[int, int] = {}
        for offset, row in enumerate(self.rows):
            if row is not None:
                starts.setdefault(row[0], offset)
        return tuple(starts.items())

    def get(self, offset: int) -> Row | None:
        return self.rows[offset] if offset < len(self.rows) else None

    def put(self, offset: int, row: Row) -> Disk:
        rows = [*self.rows, *[None] * (offset + 1 - len(self.rows))]
        rows[offset] = row
        return Disk(tuple(rows))

    def cut(self, end: int) -> Disk:
        rows = list(self.rows[:end])
        while rows and rows[-1] is None:
            rows.pop()
        return Disk(tuple(rows))


Disks = dict[str, Disk]
"""The disks of the nodes that are not wiped, by name."""


class Node(NamedTuple):
    """A node: what is not in the journal."""

    wiped: bool = False
    disk: Disk = Disk()
    copied: int = NOTHING
    """The number of the file that it has copied and not reported."""
    high_watermark: int = 0
    """What it knew of the HW when it last had to do with the journal; only where a variant asks for it."""
    incarnation: int = 0


class State(NamedTuple):
    topic: int
    """The number of the journal's state."""
    nodes: tuple[Node, ...]
    produced: int = 0
    acked: int = 0
    """The rows that were acknowledged with acks=all, as bits."""
    rebuilds: int = 0


class Known(NamedTuple):
    """What is asked of a topic's state again and again."""

    state: Topic
    partition: Partition
    log: tuple[Row, ...]


# How a disk is cut


def by_epoch(disk: Disk, known: Known, _: int) -> int:
    """Return where a disk is cut: as the product does it."""
    partition = known.partition
    return divergence(disk.epochs, len(disk.rows), partition.epoch_starts, partition.log_end)


def by_high_watermark(disk: Disk, known: Known, high_watermark: int) -> int:
    """Return the HW that the node knew: Kafka before KIP-101."""
    return high_watermark


def by_one_question(disk: Disk, known: Known, _: int) -> int:
    """Return the end of the disk's last epoch, whatever epoch the answer is about: KIP-101 before KIP-279."""
    if not disk.epochs:
        return 0
    return min(len(disk.rows), known.partition.end_of_epoch(disk.epochs[-1][0]))


def words(rows: tuple[Row | None, ...]) -> str:
    return "[" + " ".join("-" if row is None else f"{row[1]}@{row[0]}" for row in rows) + "]"
