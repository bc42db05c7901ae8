"""The nodes: three folders in place of three disks, ways to harm them, and the commands that repair them.

The journals are on all three as well, so no node is special. Commands run as an operator would type them: `pyspark-log`
in a process of its own.
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
    """The folders, one for each node, and the address of their cluster."""

    def __init__(self, folder: Path, tell: Callable[[str], object]) -> None:
        """Call `tell` with each command and its output."""
        self.folders = {str(number): folder / f"node-{number}" for number in range(NODES)}
        self.address = ",".join(str(each) for each in self.folders.values())
        self._folder = folder
        self._tell = tell

    def create(self) -> None:
        """Create the cluster and the topic, with a replica on each node; two nodes must have each batch."""
        self._run("cluster", "create", "--journal-nodes", self.address)
        replicas = ["--replication-factor", str(NODES), "--config", "min.insync.replicas=2"]
        self._run("topics", "create", TOPIC, "--partitions", str(PARTITIONS), *replicas)

    def wipe(self, node: str) -> None:
        """Replace the disk of a node by an empty one."""
        folder = self.folders[node]
        old = folder.with_name(f"{folder.name}.old")
        folder.rename(old)  # in one step, because others write to it
        folder.mkdir()
        shutil.rmtree(old)

    def damage(self, node: str, handle: TopicHandle) -> int:
        """Flip a byte in each chunk of the newest append file of the topic; return the number of chunks."""
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
        """Renew the node on the empty disk, let it catch up, and migrate the journals to it again."""
        self._run("nodes", "renew", node, "--yes")
        self._run("node", "run", node, "--once")
        self._run("cluster", "migrate-journals", "--to", ",".join(self.folders))

    def repair(self, node: str) -> None:
        """Read every copy of every row, and repair the damaged ones.

        A copy that was found earlier no longer counts: the node's own follower copies that one again.
        """
        self._run("verify", TOPIC, "--repair")
        self._run("node", "run", node, "--once")

    def verify(self) -> None:
        """Read everything once more; exit if anything is wrong."""
        self._run("verify", TOPIC)

    def _run(self, *words: str) -> None:
        """Run `pyspark-log` with these words; print the command and its output, with paths relative to the folder."""
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
