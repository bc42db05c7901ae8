"""Incidents: while both programs run, one node loses its disk, and a file of another is damaged."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from flights.progress import topic_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from flights.nodes import Nodes

    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_coordinator.model.topic_state import Topic

WIPE_PERCENT = 25
DAMAGE_PERCENT = 60


class Incidents:
    """Wipes one node and damages another when the writer has reached certain points, and watches the effect."""

    def __init__(self, nodes: Nodes, log: Log, say: Callable[[str, str], object]) -> None:
        self._nodes = nodes
        self._log = log
        self._say = say
        self.wiped: str | None = None
        self.damaged: str | None = None
        self.seconds: float | None = None
        """The time from the loss of the disk to the next batch that is in the log without it."""
        self._wiped_at = 0.0

    def watch(self, percent: int) -> None:
        """Wipe or damage a node if the writer, which is at `percent`, has reached that point."""
        if self.wiped is None:
            if percent >= WIPE_PERCENT:
                self._wipe()
        elif self.seconds is None:
            self._check_next_batch()
        elif self.damaged is None and percent >= DAMAGE_PERCENT:
            self._damage()

    def _wipe(self) -> None:
        leads = leaders(topic_of(self._log).journal.state)
        self.wiped = max(sorted(leads), key=leads.__getitem__)
        led = leads[self.wiped]
        self._nodes.wipe(self.wiped)
        self._wiped_at = time.monotonic()
        self._say("nodes", f"[red]node {self.wiped} lost its disk[/]: it led {led} partitions and held journals")

    def _check_next_batch(self) -> None:
        topic = topic_of(self._log).journal.state
        if any(self.wiped in each.isr for each in topic.partitions):
            return
        self.seconds = time.monotonic() - self._wiped_at
        self._say("nodes", f"the next batch is in the log without it after {self.seconds:.1f} s")

    def _damage(self) -> None:
        handle = topic_of(self._log)
        leads = leaders(handle.journal.state)
        self.damaged = max(sorted(leads), key=leads.__getitem__)
        chunks = self._nodes.damage(self.damaged, handle)
        self._say("nodes", f"[red]node {self.damaged} has a damaged file[/], with rows in {chunks} chunks")


def leaders(topic: Topic) -> dict[str, int]:
    """Return the number of partitions that each node leads; nodes that lead none are left out."""
    found = [each.leader for each in topic.partitions if each.leader is not None]
    return {node: found.count(node) for node in found}
