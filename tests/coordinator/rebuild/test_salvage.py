"""Segments that are damaged on every node: their good chunks are in the rebuilt log."""

import os

import pytest

from pyspark_log_coordinator.audit import verify
from pyspark_log_coordinator.rebuild import folder_scan, salvage
from pyspark_log_storage import layout
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.files import chunk
from pyspark_log_storage.parquet import parquet_segment
from pyspark_log_storage.segments import segment
from tests.support.coordinator.lost_cluster import LostCluster
from tests.support.coordinator.replicated_topic import ALL
from tests.support.coordinator.stored_topic import batch_of
from tests.support.memory_store import MemoryStore
from tests.support.plain_log import flip_bit

ROWS = 2_000
"""Rows of a batch: enough for a chunk of its own in a segment."""


class Spoiled(LostCluster):
    """Topic t with segments of one, four and one chunk on all nodes, and nothing else."""

    def __init__(self, path):
        super().__init__(path)
        handle = self.create("t")
        self.names, self.places = [], []
        for batches in (1, 4, 1):
            self.append("t", batches, rows=ROWS)
            self.names.append(self.roll("t"))
            self.places.append(segment.scan(self.log.node_store("0"), handle.segment(0, self.names[-1])))
        assert [len(each) for each in self.places] == [1, 4, 1]
        self.checkpoint("t")
        for node in ALL:
            for each in (self.folder(node, "t") / "append").iterdir():
                each.unlink()

    def path_of(self, number, node):
        return self.segment(node, "t", self.names[number])

    def spoil(self, number, **chunks):
        """Damage these chunks of a segment on the nodes given as node0, node1 and node2."""
        for node, damaged in chunks.items():
            for each in damaged:
                flip_bit(self.path_of(number, node[-1]), 8 * (self.places[number][each].position + 100))

    def spoil_header(self, number, node):
        size = self.path_of(number, node).stat().st_size
        flip_bit(self.path_of(number, node), 8 * (size - 20 if self.parquet else 20))


@pytest.fixture(params=["log", "parquet"])
def cluster(tmp_path, request, monkeypatch):
    monkeypatch.setattr(parquet_segment, "ROW_GROUP_BYTES", 80_000)  # each batch is a row group, as it is a chunk
    monkeypatch.setattr(Spoiled, "parquet", request.param == "parquet")
    return Spoiled(tmp_path)


def rebuild(cluster):
    cluster.lose_journals()
    return cluster.rebuild()


def sound(cluster):
    assert verify.verify(cluster.log.topic("t")).findings == []


def test_damage_in_different_chunks_of_each_copy_loses_no_row(cluster):
    cluster.spoil(1, node0=[0, 1], node1=[1, 3], node2=[0, 2])
    assert rebuild(cluster).lost == 0
    cluster.check()
    for node in ALL:
        cluster.catch_up("t", node)
    assert cluster.log.topic("t").refresh().partitions[0].isr == ALL
    sound(cluster)
    file = layout.segment_file(cluster.names[1])
    assert all(file in {each.name for each in cluster.set_aside(node)} for node in ALL)


def test_the_log_ends_before_the_first_chunk_that_no_node_has_whole(cluster):
    cluster.spoil(1, node0=[1, 2], node1=[0, 2], node2=[2])
    found = rebuild(cluster)
    assert found.lost == 3 * ROWS
    cluster.check(lost={("t", 0): 3 * ROWS})
    sound(cluster)
    cluster.forget("t", 3 * ROWS)
    cluster.append("t")
    cluster.check()


def test_a_salvaged_segment_never_costs_later_rows(cluster):
    """Without the first two segments the log begins with the third. A part of the second would end it before that."""
    for node in ALL:
        cluster.spoil_header(0, node)
    cluster.spoil(1, node0=[2], node1=[2], node2=[2])
    assert rebuild(cluster).topics[0].partitions[0].log_start == 5 * ROWS
    assert cluster.read("t") == cluster.expected["t", 0][5 * ROWS :]


def written(store, start, *batches, epochs=((0, 0),), name=""):
    """Write a segment from this offset on, each batch a chunk; return its name."""
    name = name or layout.segment_name(start, 1, "0" * 32)
    writer = segment.SegmentWriter(store, "topics/t/1/0/", name, start, epochs)
    for each in batches:
        writer.append(*chunk.encode(batch_of(each), schema.RECORD_ID, "none"))
    writer.close()
    return name


def spoiled(store, name, number):
    """Return the bytes of a segment, one of whose chunks is damaged."""
    key = f"topics/t/1/0/{name}"
    entry = segment.scan(store, key)[number]
    data = bytearray(store.read(f"{key}.log"))
    data[entry.position + 50] ^= 1
    return bytes(data)


@pytest.mark.parametrize(("at_the_survey", "at_the_end"), [(2, 1), (1, 2)], ids=["damaged since", "readable again"])
def test_a_salvaged_segment_has_the_rows_of_the_survey_or_is_not_made(at_the_survey, at_the_end):
    """The number is that of the damaged chunk. The first one has rows 0 and 1, the others a row each."""
    store, target = MemoryStore(), MemoryStore()
    name = written(store, 0, [b"0", b"1"], [b"2"], [b"3"])
    key = f"topics/t/1/0/{name}.log"
    by_damage = {number: spoiled(store, name, number) for number in (1, 2)}
    store.put(key, by_damage[at_the_survey])
    found = salvage.find({"0": store}, "topics/t/1/", 0, name, schema.RECORD_SCHEMAS)
    assert found.file.end_offset == at_the_survey + 1
    store.put(key, by_damage[at_the_end])
    if at_the_end < at_the_survey:
        with pytest.raises(CorruptObject, match="its rows from 2 to 2 were damaged since the survey"):
            salvage.write(found, {"0": store}, "topics/t/1/", target, schema.RECORD_SCHEMAS)
        assert list(target.list("")) == []
    else:
        salvage.write(found, {"0": store}, "topics/t/1/", target, schema.RECORD_SCHEMAS)
        entries = segment.scan(target, f"topics/t/1/0/{found.file.name}")
        assert [(each.base_offset, each.end_offset) for each in entries] == [(0, 2)]


def test_the_leader_epochs_of_another_segment_under_a_name_are_not_those_of_the_log():
    store = MemoryStore()
    own = written(store, 0, [b"0"])
    written(store, 10, [b"x"], epochs=((0, 0), (9, 10)), name=layout.segment_name(1, 1, "1" * 32))
    right, wrong = folder_scan.scan(store, folder_scan.TopicFolder("t", "1")).segments
    assert (right.file.name, right.why, right.epochs) == (own, None, ((0, 0),))
    assert "it begins at offset 10, not 1 as its name says" in wrong.why
    assert wrong.epochs == ()


def test_a_header_that_is_damaged_on_one_node_is_read_from_another(cluster):
    cluster.spoil(1, node0=[0, 3], node1=[3])
    cluster.spoil_header(1, "1")
    os.truncate(cluster.path_of(1, "2"), 10)
    assert rebuild(cluster).lost == 2 * ROWS
    cluster.check(lost={("t", 0): 2 * ROWS})


def test_another_segment_under_the_name_is_not_salvaged(cluster):
    other = cluster.path_of(2, "0").read_bytes()
    for node in ("0", "1"):
        cluster.path_of(1, node).write_bytes(other)
    cluster.spoil(1, node2=[1])
    assert rebuild(cluster).lost == 4 * ROWS
    cluster.check(lost={("t", 0): 4 * ROWS})
