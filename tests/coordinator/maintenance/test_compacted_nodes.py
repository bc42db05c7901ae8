"""The head of a compacted partition is replicated, copied, checked, repaired and rebuilt as all segments are."""

from pathlib import Path

import pytest

import pyspark_log
from pyspark_log_coordinator.audit.repair import repair
from pyspark_log_coordinator.audit.verify import verify
from pyspark_log_coordinator.maintenance import topic_cleanup
from pyspark_log_coordinator.maintenance.roll_task import roll_task_of, run_roll
from pyspark_log_coordinator.segments.swap import MaintainSegments
from tests.support.coordinator.compacted_topic import clean_job
from tests.support.coordinator.lost_cluster import LostCluster
from tests.support.coordinator.replicated_topic import ALL
from tests.support.plain_log import flip_bit
from tests.support.storage import table_reader


class CompactedCluster(LostCluster):
    """Topic t on three nodes, with keyed rows."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        settings = {"cleanup_policy": "compact", "file_delete_delay_ms": "0"}
        self.create("t", **settings)
        self.state: dict[bytes, bytes] = {}

    @property
    def handle(self):
        return self.log.topic("t")

    @property
    def partition(self):
        return self.handle.refresh().partitions[0]

    def send(self, *rows):
        """Write rows of key and value, one batch."""
        with pyspark_log.Producer(self.url("0"), {"linger.ms": 1000}) as producer:
            for key, value in rows:
                producer.send("t", value, key=key)
                self.state[key] = value

    def compact(self, pieces=None):
        """Clean what is not compacted, or the oldest pieces of it, and merge nothing."""
        job = clean_job(self.handle, self.log.environment.now_ms(), pieces)
        swap = run_roll(self.log.store_at, roll_task_of(self.handle, job), self.log.environment)
        self.handle.submit(MaintainSegments((swap,)))

    def rows(self):
        """Return offset, key and value of each row, without Spark."""
        batches = list(pyspark_log.scan(self.url("0"), "t", columns=["offset", "key", "value"]))
        return [tuple(row.values()) for each in batches for row in each.to_pylist()]

    def newest(self):
        """Return the newest value of each key, without Spark."""
        scan = pyspark_log.scan(self.url("0"), "t", columns=["key", "value"], latest=True)
        rows = [tuple(row.values()) for each in scan for row in each.to_pylist()]
        assert len(dict(rows)) == len(rows) <= scan.num_rows
        return dict(rows)

    def check(self):
        """Check that the newest row of each key is there, and that nothing is wrong."""
        rows = self.rows()
        assert [offset for offset, _, _ in rows] == sorted({offset for offset, _, _ in rows})
        assert {key: value for _, key, value in rows} == self.state
        assert self.newest() == {key: value for key, value in self.state.items() if value is not None}
        assert verify(self.handle).findings == []


@pytest.fixture
def cluster(tmp_path):
    """A head of the segments [0, 4) and [4, 7), and two dense rows."""
    made = CompactedCluster(tmp_path)
    made.send((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"a", b"2"))
    made.compact()
    made.send((b"b", b"2"), (b"d", b"1"), (b"e", None))
    made.compact()
    made.send((b"a", b"3"), (b"f", b"1"))
    keyed = made.partition.keyed_segments
    assert [(each.base_offset, each.end_offset, each.keyed.rows) for each in keyed] == [(0, 4, 2), (4, 7, 3)]
    return made


def test_damaged_and_lost_copies_of_keyed_segments_are_found_and_copied_from_another_node(cluster):
    first, second = (each.name for each in cluster.partition.keyed_segments)
    whole = cluster.segment("1", "t", second).read_bytes()
    cluster.segment("2", "t", first).unlink()
    flip_bit(cluster.segment("0", "t", second), 10)
    assert cluster.state == {key: value for _, key, value in cluster.rows()}
    assert len(verify(cluster.handle).findings) == 2
    repair(cluster.handle)
    cluster.check()
    assert {cluster.segment(node, "t", second).read_bytes() for node in ALL} == {whole}
    assert cluster.segment("2", "t", first).exists()


@pytest.mark.parametrize("nodes", [ALL, ("1",)], ids="+".join)
def test_a_rebuild_without_journals_keeps_what_compaction_made(cluster, nodes):
    topic_cleanup.clean_up_topic(cluster.handle, thorough=True)
    before = cluster.rows()
    cluster.checkpoint("t")
    cluster.lose_journals()
    for node in set(ALL) - set(nodes):
        cluster.lose_node(node)
    cluster.rebuild(nodes, journals_are_lost="0" not in nodes)
    keyed = cluster.partition.keyed_segments
    assert [(each.base_offset, each.end_offset, each.keyed.rows, each.keyed.tombstones) for each in keyed] == [
        (0, 4, 2, 0),
        (4, 7, 3, 1),
    ]
    if "0" in nodes:
        assert cluster.rows() == before
        cluster.check()
        cluster.send((b"b", b"9"))
        cluster.compact()
        cluster.check()


def table_of(cluster, node):
    """Return the newest values by key in the table on a node, as other engines read it."""
    folder = cluster.folder(node, "t")
    objects = {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}
    rows = table_reader.rows_in(objects, "", ["key", "value"])
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def test_the_table_has_what_is_left_of_the_head_when_a_segment_is_lost(cluster):
    topic_cleanup.clean_up_topic(cluster.handle)
    name = cluster.partition.keyed_segments[1].name
    for node in ALL:
        flip_bit(cluster.segment(node, "t", name), 10)
    cluster.checkpoint("t")
    cluster.lose_journals()
    cluster.rebuild()
    assert cluster.partition.log_end == 4
    topic_cleanup.clean_up_topic(cluster.handle)
    assert [table_of(cluster, node) for node in ALL] == [{b"a": b"2", b"c": b"1"}] * 3
