"""Keyed segments are replicated, copied, checked, repaired and rebuilt as all segments are."""

from pathlib import Path

import pytest

import pyspark_log
from pyspark_log_coordinator.audit.repair import repair
from pyspark_log_coordinator.audit.verify import verify
from pyspark_log_coordinator.backup import backup, manifest
from pyspark_log_coordinator.backup.restore import restore
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.maintenance import topic_cleanup, topic_roll
from pyspark_log_coordinator.maintenance.roll_task import roll_task_of, run_roll
from pyspark_log_coordinator.replication.damage import ReportDamage
from pyspark_log_coordinator.segments import roll_plan
from pyspark_log_coordinator.sync.catch_up import catch_up
from pyspark_log_coordinator.topic.machine import MaintainSegments
from pyspark_log_storage import layout
from pyspark_log_storage.errors import DataLoss, InvalidInput
from tests.support.coordinator.compacted_topic import fold_job
from tests.support.coordinator.lost_cluster import LostCluster
from tests.support.coordinator.replicated_topic import ALL
from tests.support.memory_store import MemoryStore
from tests.support.plain_log import flip_bit
from tests.support.storage import vector_reader


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
        """Fold what is not compacted, or the oldest pieces of it, and merge nothing."""
        job = fold_job(self.handle, self.log.environment.now_ms(), pieces)
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
    """Keyed segments [0, 4) and [4, 7), of which the second supersedes rows of the first, and two dense rows."""
    made = CompactedCluster(tmp_path)
    made.send((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"a", b"2"))
    made.compact()
    made.send((b"b", b"2"), (b"d", b"1"), (b"e", None))
    made.compact()
    made.send((b"a", b"3"), (b"f", b"1"))
    keyed = made.partition.keyed_segments
    assert [(each.base_offset, each.end_offset, each.keyed.rows) for each in keyed] == [(0, 4, 3), (4, 7, 3)]
    assert keyed[0].keyed.superseded == 1
    return made


def test_a_scan_has_the_rows_that_are_there(cluster):
    assert cluster.rows() == [
        (1, b"b", b"1"),
        (2, b"c", b"1"),
        (3, b"a", b"2"),
        (4, b"b", b"2"),
        (5, b"d", b"1"),
        (6, b"e", None),
        (7, b"a", b"3"),
        (8, b"f", b"1"),
    ]
    cluster.check()


def test_the_newest_rows_are_read_without_spark_and_without_the_columns_that_say_so(cluster):
    cluster.check()
    scan = pyspark_log.scan(cluster.url("0"), "t", columns=["key"], latest=True)
    assert sorted(row["key"] for each in scan for row in each.to_pylist()) == [b"a", b"b", b"c", b"d", b"f"]
    assert [each.num_rows for each in scan].count(0) == 0


def test_the_newest_rows_of_a_scan_are_fixed_when_it_is_made(cluster):
    scan = pyspark_log.scan(cluster.url("0"), "t", columns=["key", "value"], latest=True)
    cluster.send((b"a", b"4"), (b"c", None))
    assert {row["key"]: row["value"] for each in scan for row in each.to_pylist()} == {
        b"a": b"3",
        b"b": b"2",
        b"c": b"1",
        b"d": b"1",
        b"f": b"1",
    }


def test_a_scan_of_rows_that_are_compacted_and_deleted_meanwhile_fails(cluster):
    scan = pyspark_log.scan(cluster.url("0"), "t", columns=["key"], latest=True)
    cluster.compact()
    topic_cleanup.clean_up_topic(cluster.handle, thorough=True)
    with pytest.raises(DataLoss, match="were compacted while they were read; start the read again"):
        list(scan)


@pytest.mark.parametrize("wrong", [{"start": {0: 1}}, {"end": {0: 3}}])
def test_the_newest_rows_have_no_start_and_no_end(cluster, wrong):
    with pytest.raises(InvalidInput, match="omit start and end"):
        pyspark_log.scan(cluster.url("0"), "t", latest=True, **wrong)


def test_a_node_compacts_the_partitions_that_it_leads(cluster):
    cluster.handle.alter_config({"min.cleanable.dirty.ratio": "0"})
    leader = cluster.partition.leader
    other = next(each for each in ALL if each != leader)
    topic_roll.roll_led_by(cluster.log, other, lambda *_: None)
    assert cluster.partition.compacted_end == 7
    topic_roll.roll_led_by(cluster.log, leader, lambda *_: None)
    assert cluster.partition.compacted_end == 9
    cluster.check()


def test_every_node_has_the_keyed_segments(cluster):
    for segment in cluster.partition.keyed_segments:
        assert {each.node for each in segment.holders} == set(ALL)
        assert len({cluster.segment(node, "t", segment.name).read_bytes() for node in ALL}) == 1


def test_a_node_that_was_wiped_gets_them_again(cluster):
    for segment in cluster.partition.keyed_segments:
        cluster.segment("2", "t", segment.name).unlink()
    repair(cluster.handle)
    cluster.check()
    assert all(cluster.segment("2", "t", each.name).exists() for each in cluster.partition.keyed_segments)


@pytest.mark.parametrize("place", [10, -60_000, -2_000])
def test_a_flipped_bit_is_found_and_mended_from_another_node(cluster, place):
    name = cluster.partition.keyed_segments[1].name
    file = cluster.segment("0", "t", name)
    flip_bit(file, max(5, file.stat().st_size + place) if place < 0 else place)
    assert cluster.state == {key: value for _, key, value in cluster.rows()}
    assert verify(cluster.handle).findings != []
    repair(cluster.handle)
    cluster.check()


def test_a_missing_index_is_made_again(cluster):
    name = cluster.partition.keyed_segments[0].name
    index = cluster.segment("1", "t", name).with_name(f"{name}.index")
    before = index.read_bytes()
    index.unlink()
    repair(cluster.handle)
    assert index.read_bytes() == before
    cluster.check()


def test_what_was_replaced_is_deleted_and_nothing_else(cluster):
    topic_cleanup.clean_up_topic(cluster.handle)
    kept = {layout.segment_file(each.name) for each in cluster.partition.segments}
    for node in ALL:
        found = {
            each.name for each in (cluster.folder(node, "t") / "0").iterdir() if each.suffix in {".log", ".parquet"}
        }
        assert found == kept
    cluster.check()


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
        (0, 4, 3, 0),
        (4, 7, 3, 1),
    ]
    if "0" in nodes:
        assert cluster.rows() == before
        cluster.check()
        cluster.send((b"b", b"9"))
        cluster.compact()
        cluster.check()


def test_a_rebuild_does_not_mix_rows_of_before_and_after_a_compaction(tmp_path):
    """What a fold replaced may still be there. The rows are those of before or of after it."""
    cluster = CompactedCluster(tmp_path)
    cluster.handle.alter_config({"file.delete.delay.ms": "1000000"})
    for number in range(3):
        cluster.send((b"a", b"%d" % number), (b"b", b"%d" % number))
        cluster.roll("t")
    cluster.compact()
    assert [each.keyed is not None for each in cluster.partition.segments] == [True]
    cluster.checkpoint("t")
    cluster.lose_journals()
    cluster.rebuild()
    assert [(each.base_offset, each.end_offset, each.rows) for each in cluster.partition.segments] == [(0, 6, 2)]
    cluster.check()


def test_a_rebuild_never_puts_a_keyed_segment_after_a_dense_one(tmp_path):
    cluster = CompactedCluster(tmp_path)
    cluster.handle.alter_config({"file.delete.delay.ms": "1000000"})
    dense = []
    for number in range(2):
        cluster.send((b"a", b"%d" % number), (b"b", b"%d" % number))
        dense.append(cluster.roll("t"))
        cluster.compact()
    first, _ = cluster.partition.keyed_segments
    for node in ALL:  # what is left is dense rows before the others, and keyed ones
        flip_bit(cluster.segment(node, "t", first.name), 10)
        flip_bit(cluster.segment(node, "t", dense[1]), 100)
    cluster.checkpoint("t")
    cluster.lose_journals()
    cluster.rebuild()
    assert len({each.keyed is not None for each in cluster.partition.segments}) == 1


def test_a_rebuild_leaves_out_what_a_slow_roll_wrote_across_the_compacted_end(tmp_path):
    cluster = CompactedCluster(tmp_path)
    cluster.send((b"a", b"0"), (b"b", b"0"))
    cluster.send((b"a", b"1"), (b"b", b"1"))
    cluster.send((b"a", b"2"))
    one = cluster.partition
    job = roll_plan.RollJob(0, one.leader_epoch, 1, (), tuple(one.chunks[1:]), one.epoch_starts)
    slow = roll_task_of(cluster.handle, job)
    cluster.compact(pieces=2)
    run_roll(cluster.log.store_at, slow, cluster.log.environment)  # [2, 5), which no entry will name
    cluster.checkpoint("t")
    cluster.lose_journals()
    cluster.rebuild()
    assert [(each.base_offset, each.end_offset) for each in cluster.partition.segments][:1] == [(0, 4)]
    cluster.check()


def table_of(cluster, node):
    """Return the newest values by key in the table on a node, as other engines read it."""
    folder = cluster.folder(node, "t")
    objects = {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}
    rows = vector_reader.rows_in(objects, "", ["key", "value"])
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def test_every_node_has_the_newest_state_as_a_table(cluster):
    topic_cleanup.clean_up_topic(cluster.handle)
    wanted = {b"a": b"2", b"b": b"2", b"c": b"1", b"d": b"1"}
    assert [table_of(cluster, node) for node in ALL] == [wanted] * 3
    cluster.compact()
    topic_cleanup.clean_up_topic(cluster.handle)
    assert [table_of(cluster, node) for node in ALL] == [cluster.newest()] * 3


def test_the_table_of_a_node_that_lacks_a_keyed_segment_lacks_the_partition(cluster):
    handle = cluster.handle
    lost = (0, cluster.partition.keyed_segments[1].name, 0)
    handle.submit(ReportDamage("2", handle.state.incarnations["2"], segments=(lost,)))
    topic_cleanup.clean_up_topic(handle)
    assert [len(table_of(cluster, node)) for node in ALL] == [4, 4, 0]
    catch_up(handle, "2")
    topic_cleanup.clean_up_topic(handle)
    assert [len(table_of(cluster, node)) for node in ALL] == [4, 4, 4]


def test_rows_that_a_lost_segment_superseded_are_in_the_table_again(cluster):
    topic_cleanup.clean_up_topic(cluster.handle)
    name = cluster.partition.keyed_segments[1].name
    for node in ALL:
        flip_bit(cluster.segment(node, "t", name), 10)
    cluster.checkpoint("t")
    cluster.lose_journals()
    cluster.rebuild()
    assert cluster.partition.log_end == 4
    topic_cleanup.clean_up_topic(cluster.handle)
    assert [table_of(cluster, node) for node in ALL] == [{b"a": b"2", b"b": b"1", b"c": b"1"}] * 3


def test_a_backup_has_the_keyed_segments(cluster):
    target, root = MemoryStore("target"), MemoryStore("restored")
    backup.back_up(cluster.log, target)
    restore(manifest.read(target, manifest.numbers(target)[-1]), target, root, real_environment(), as_new=True)
    log = Log(root, real_environment(), open_node=MemoryStore)
    log.open(create=False)
    handle = log.topic("t")
    assert [each.keyed for each in handle.partitions[0].segments] == [each.keyed for each in cluster.partition.segments]
    assert verify(handle).findings == []


def test_a_keyed_segment_that_no_node_has_whole_is_not_salvaged(cluster):
    name = cluster.partition.keyed_segments[1].name
    for node in ALL:
        flip_bit(cluster.segment(node, "t", name), 10)
    cluster.checkpoint("t")
    cluster.lose_journals()
    cluster.rebuild()
    assert [(each.base_offset, each.end_offset) for each in cluster.partition.segments] == [(0, 4)]
    assert cluster.partition.log_end == 4


def test_a_node_that_was_away_copies_the_keyed_segments(cluster):
    names = [each.name for each in cluster.partition.keyed_segments]
    holders = cluster.partition.keyed_segments[0].holders
    assert len(holders) == 3
    cluster.log.topic("t")
    assert catch_up(cluster.handle, "2") is not None
    assert all(cluster.segment("2", "t", name).exists() for name in names)
