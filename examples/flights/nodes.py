"""The nodes: three folders that stand for three disks, what befalls them, and the commands that mend it.

The journals are on all three as well, so none of them is a special one. What an operator would type is run as it is
typed: `pyspark-log` as a program of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from flights.progress import TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark_log_coordinator.log.log import TopicHandle

NODES = 3
PARTITIONS = 8


class Nodes:
    """The folders, each of which is a node, and the address of the cluster that they make up."""

    def __init__(self, folder: Path, tell: Callable[[str], object]) -> None:
        """`tell` is told each command that is run."""
        self.folders = {str(number): folder / f"node-{number}" for number in range(NODES)}
        self.address = ",".join(str(each) for each in self.folders.values())
        self._folder = folder
        self._tell = tell

    def create(self) -> None:
        """Make the cluster and the topic, of which every node gets a replica and two must have each batch."""
        self._run("cluster", "create", "--journal-nodes", self.address)
        replicas = ["--replication-factor", str(NODES), "--config", "min.insync.replicas=2"]
        self._run("topics", "create", TOPIC, "--partitions", str(PARTITIONS), *replicas)

    def wipe(self, node: str) -> None:
        """Put an empty disk in the place of a node's."""
        folder = self.folders[node]
        old = folder.with_name(f"{folder.name}.old")
        folder.rename(old)  # at once, for others write to it
        folder.mkdir()
        shutil.rmtree(old)

    def damage(self, node: str, handle: TopicHandle) -> int:
        """Turn a byte over in each chunk of the newest append file of the topic; return how many."""
        topic = handle.journal.state
        newest = topic.next_file - 1
        chunks = [chunk for each in topic.partitions for chunk in each.chunks if chunk.file == newest]
        with (self.folders[node] / handle.append_file(topic.file(newest).name)).open("r+b") as file:
            for chunk in chunks:
                middle = chunk.position + chunk.length // 2
                file.seek(middle)
                byte = file.read(1)[0]
                file.seek(middle)
                file.write(bytes([byte ^ 0xFF]))
        return len(chunks)

    def renew(self, node: str) -> None:
        """Begin again on the empty disk, copy to it what the other nodes have, and let it hold the journals again."""
        self._run("nodes", "renew", node, "--yes")
        self._run("node", "run", node, "--once")
        self._run("cluster", "move-journals", "--to", ",".join(self.folders))

    def repair(self, node: str) -> None:
        """Read every copy of every row, and make the damaged ones again.

        A copy that somebody found before is not counted any more: the node's own follower makes that again.
        """
        self._run("verify", TOPIC, "--repair")
        self._run("node", "run", node, "--once")

    def verify(self) -> None:
        """Read everything once more; the program ends where anything is wrong."""
        self._run("verify", TOPIC)

    def _run(self, *words: str) -> None:
        """Run `pyspark-log` with these words, and tell the command and what it printed, paths without the folder."""
        self._tell(f"$ pyspark-log {' '.join(words)}".replace(f"{self._folder}/", ""))
        command = [sys.executable, "-m", "pyspark_log.cli", *words]
        done = subprocess.run(
            command,
            env=os.environ | {"PYSPARK_LOG_PATH": self.address},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        for line in done.stdout.splitlines():
            self._tell(f"  {line.replace(f'{self._folder}/', '')}")
        if done.returncode != 0:
            raise SystemExit(f"pyspark-log {' '.join(words)} ended with exit code {done.returncode}")
