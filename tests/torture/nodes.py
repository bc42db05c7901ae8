"""Three nodes: folders that are taken away, and come back as they were, or as they were some time ago."""

import contextlib
import functools
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log import bootstrap, node_admin
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_storage.stores.local import LocalStore
from tests.support.coordinator.small_topic import PARTITIONS, TOPIC, TopicClient

NODES = ("0", "1", "2")


def _copy_if_there(source: str, target: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # it went while the disk was copied
        shutil.copyfile(source, target)


class Nodes:
    """A cluster with a topic that has a replica on each of its nodes, and their folders."""

    def __init__(self, folder: Path, journals: int, config: TopicConfig) -> None:
        """`journals` on one node, "0", or on all three. Another node leads all partitions."""
        self.folder = folder / "nodes"
        for node in NODES:
            self._away(node).mkdir(parents=True, exist_ok=True)
        self._mounts = itertools.count()
        urls = [str(self[node]) for node in NODES]
        if journals == 1:
            self.root = urls[0]
            log = TopicClient(self.root).log
            for url in urls[1:]:
                node_admin.join(log, url)
        else:
            self.root = ",".join(urls)
            bootstrap.mark([LocalStore(url) for url in urls], real_environment())
            log = TopicClient(self.root).log
        log.create_topic(TOPIC, PARTITIONS, config, replicas=[("1", "0", "2")] * PARTITIONS)

    def __getitem__(self, node: str) -> Path:
        return self.disk(node) / f"node-{node}"

    def disk(self, node: str) -> Path:
        """Return where a disk of its own may be mounted, on which the node's folder is, and its copies."""
        return self.folder / node

    def _away(self, node: str) -> Path:
        return self.disk(node) / "away"

    def take_away(self, node: str) -> None:
        """Take a node's disk away."""
        self[node].rename(self._away(node) / "folder")

    def bring_back(self, node: str) -> None:
        """Bring back a disk that was taken away."""
        self._mount(self._away(node) / "folder", node)

    def back_up(self, node: str) -> Callable[[], None]:
        """Copy a node's disk as it is now; return what brings back this copy in place of a disk that was taken away."""
        backup = self._away(node) / "backup"
        shutil.copytree(self[node], backup, ignore=shutil.ignore_patterns(".tmp"), copy_function=_copy_if_there)
        return functools.partial(self._mount, backup, node)

    def keep_journals(self, node: str) -> None:
        """Give the copy of a disk that was taken away the journals that the disk has now."""
        disk, backup = self._away(node) / "folder", self._away(node) / "backup"
        for folder in [*disk.glob("topics/*/*/journal"), *disk.glob("groups"), *disk.glob("cluster")]:
            shutil.rmtree(backup / folder.relative_to(disk), ignore_errors=True)
            place, ignored = backup / folder.relative_to(disk), shutil.ignore_patterns(".tmp")
            shutil.copytree(folder, place, ignore=ignored, copy_function=_copy_if_there)

    def throw_away(self, node: str) -> None:
        """Delete what was taken away of a node."""
        for each in self._away(node).iterdir():
            shutil.rmtree(each)

    def _mount(self, disk: Path, node: str) -> None:
        """Put a disk where a node's was. What was written below the mount point meanwhile is not seen any more."""
        while True:
            with contextlib.suppress(FileNotFoundError):
                self[node].rename(self._away(node) / f"below.{next(self._mounts)}")
            try:
                disk.rename(self[node])
            except OSError:  # somebody has written there in this moment
                continue
            return
