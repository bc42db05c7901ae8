"""Damaged and lost copies in real files: one walk finds them, one cure replaces them, and no entry says so."""

import shutil

import pytest

from pyspark_log_coordinator.audit import verify
from pyspark_log_coordinator.audit.repair import repair
from pyspark_log_coordinator.journal.history import history
from pyspark_log_coordinator.model.topic_config import parse
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_coordinator.sync import faults, operator_elections, replica_file
from pyspark_log_coordinator.sync.catch_up import renew_set_back
from pyspark_log_coordinator.sync.failure_detector import failure_detector_of
from pyspark_log_storage import layout
from pyspark_log_storage.errors import NodeMissing, NotEnoughReplicas
from tests.support.coordinator.lost_cluster import KEEP, LostCluster
from tests.support.coordinator.replicated_topic import ALL, write
from tests.support.lost_folders import lose_folder
from tests.support.plain_log import flip_bit


@pytest.fixture(params=["log", "parquet"])
def cluster(tmp_path, request):
    """Topic t, which node 0 leads, with a segment of two batches and two unrolled batches, all on all nodes."""
    cluster = LostCluster(tmp_path)
    cluster.parquet = request.param == "parquet"
    cluster.create("t")
    cluster.append("t", 4)
    cluster.roll("t", 2)
    return cluster


def state_of(cluster):
    return cluster.log.topic("t").refresh()


def one(cluster):
    return state_of(cluster).partitions[0]


def paths(cluster, node):
    """Return the file of the segment, its index, and the newest append file of a node."""
    folder = cluster.folder(node, "t")
    name = one(cluster).segments[0].name
    appended = folder / "append" / state_of(cluster).files[-1].name
    return folder / "0" / layout.segment_file(name), folder / "0" / f"{name}.index", appended


def is_sound(cluster):
    assert verify.verify(cluster.log.topic("t")).findings == []
    assert one(cluster).isr == ALL
    cluster.check()


SPOILT = {
    "flipped": lambda path: flip_bit(path, 8 * 100),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "gone": lambda path: path.unlink(),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"more"),
}


@pytest.mark.parametrize("node", ALL[:2])
@pytest.mark.parametrize("how", SPOILT)
def test_damaged_and_lost_copies_are_found_and_replaced_and_the_journal_says_nothing(cluster, node, how):
    spoiled = paths(cluster, node)
    whole = [path.read_bytes() for path in spoiled]
    number = cluster.log.topic("t").journal.number
    for path in (spoiled[0], spoiled[2]):
        SPOILT[how](path)
    found = list(faults.faults(cluster.log.topic("t"), ALL))
    rows = [(each.partition, each.base_offset, each.end_offset) for fault in found for each in fault.rows]
    assert ([each.node for each in found], rows) == ([node] * 2, [(0, 0, 4), (0, 6, 8)])
    done = faults.scrub(cluster.log, node)
    assert ([key.rsplit("/", 1)[1] for key in done.repaired], done.failures) == ([spoiled[0].name, spoiled[2].name], ())
    assert [path.read_bytes() for path in spoiled] == whole
    assert faults.scrub(cluster.log, node).repaired == ()
    assert (cluster.log.topic("t").journal.number, one(cluster).isr) == (number, ALL)
    is_sound(cluster)


@pytest.mark.parametrize("how", SPOILT)
def test_a_damaged_index_is_made_again_from_the_nodes_own_rows(cluster, how):
    index = paths(cluster, "1")[1]
    whole = index.read_bytes()
    SPOILT[how](index)
    for path in (paths(cluster, "0")[0], paths(cluster, "2")[0]):
        path.unlink()
    assert [key.rsplit("/", 1)[1] for key in faults.scrub(cluster.log, "1").repaired] == [index.name]
    assert index.read_bytes() == whole


def test_damage_of_a_chunk_that_is_no_longer_named_is_damage_of_its_file(tmp_path):
    cluster = LostCluster(tmp_path)
    cluster.create("t", partitions=2)
    name = cluster.append("t", 1)
    cluster.roll("t", partition=0)
    path = cluster.folder("1", "t") / "append" / name
    whole = path.read_bytes()
    flip_bit(path, 8 * 100)
    (fault,) = faults.faults(cluster.log.topic("t"), ALL)
    assert (fault.node, [each.partition for each in fault.rows]) == ("1", [1])
    assert len(faults.scrub(cluster.log, "1").repaired) == 1
    assert path.read_bytes() == whole


def test_a_file_that_expires_while_it_is_read_is_not_taken_for_lost(cluster):
    expired = paths(cluster, "1")[2]

    def expire(_):
        if expired.exists():
            cluster.log.topic("t").submit(DeleteRecords(0, one(cluster).log_end))
            expired.unlink()

    done = faults.scrub(cluster.log, "1", expire)
    assert (done.repaired, done.failures, expired.exists()) == ((), (), False)


def test_a_file_without_a_whole_copy_stays_and_the_error_names_its_rows(cluster):
    before = {}
    for node in ALL:
        path = paths(cluster, node)[2]
        flip_bit(path, 8 * 100)
        before[path] = path.read_bytes()
    (failure,) = faults.scrub(cluster.log, "1").failures
    assert "partition 0, offsets 6 to 7" in failure
    assert paths(cluster, "1")[2].name in failure
    assert repair(cluster.log.topic("t")) == []
    assert [each.repairable for each in verify.verify(cluster.log.topic("t")).findings] == [False] * 3
    assert {path: path.read_bytes() for path in before} == before
    assert one(cluster).isr == ALL


def test_a_disk_that_was_read_wrongly_once_has_no_fault(cluster, monkeypatch):
    store, read = cluster.log.node_store("1"), type(cluster.log.node_store("1")).read

    def wrongly(self, key, *place):
        data = bytearray(read(self, key, *place))
        if self is store and "/append/" in key:
            monkeypatch.undo()
            data[100] ^= 1
        return bytes(data)

    monkeypatch.setattr(type(store), "read", wrongly)
    assert list(faults.faults(cluster.log.topic("t"), ALL)) == []
    assert type(store).read is read


def test_nothing_is_copied_to_a_disk_that_is_not_mounted_nor_to_another(cluster):
    mounted = cluster.path / "node1"
    mounted.rename(cluster.path / "elsewhere")
    mounted.mkdir()
    with pytest.raises(NodeMissing, match="is its disk mounted"):
        faults.scrub(cluster.log, "1")
    assert list(mounted.iterdir()) == []
    marker = mounted / layout.MARKER
    marker.write_bytes((cluster.path / "node2" / layout.MARKER).read_bytes())
    handle = cluster.log.topic("t")
    for file in replica_file.files_of(handle.journal.state):
        with pytest.raises(NodeMissing):
            faults.cure(handle, "1", file)
    assert [path for path in mounted.rglob("*") if path.is_file()] == [marker]


# A disk is set back to an old copy


def test_a_leader_whose_newest_file_is_gone_is_suspected_and_gets_it_back(tmp_path):
    cluster = LostCluster(tmp_path)
    handle = cluster.log.create_topic("t", 1, parse(KEEP), replicas=[("1", "2", "0")])
    write(cluster.log, handle, 0, {0: [b"0"]}, ALL, "1")
    shutil.copytree(tmp_path / "node1", tmp_path / "backup")
    write(cluster.log, handle, 1, {0: [b"1"]}, ALL, "1")
    lose_folder(tmp_path / "node1")
    shutil.move(tmp_path / "backup", tmp_path / "node1")
    with pytest.raises(NotEnoughReplicas):
        write(cluster.log, handle, 2, {0: [b"2"]}, ("0", "2"), "1")
    failure_detector_of(handle).look(handle)
    assert (handle.refresh().partitions[0].leader, set(handle.journal.state.suspects)) == ("1", {"1"})
    failure_detector_of(handle, session_timeout_ms=0).look(handle)
    one = handle.refresh().partitions[0]
    assert (one.leader, one.leader_epoch, one.log_end) == ("2", 1, 2)
    write(cluster.log, handle, 2, {0: [b"2"]}, ("2",), "1")
    for node in ("1", "0"):
        cluster.catch_up("t", node)
    assert (handle.refresh().partitions[0].isr, handle.journal.state.suspects) == (("1", "2", "0"), {})
    assert cluster.read("t") == [b"0", b"1", b"2"]
    assert verify.verify(handle).findings == []


def test_a_leader_that_lost_rows_which_only_it_had_is_replaced_though_its_newest_file_is_there(tmp_path):
    cluster = LostCluster(tmp_path)
    handle = cluster.log.create_topic("t", 1, parse(KEEP), replicas=[("1", "2", "0")])
    for batch, on in enumerate((ALL, ("1",), ("1",))):
        write(cluster.log, handle, batch, {0: [b"%d" % batch]}, on, "1")
    (cluster.folder("1", "t") / "append" / handle.refresh().files[1].name).unlink()
    detector = failure_detector_of(handle)
    detector.look(handle)
    one = handle.refresh().partitions[0]
    assert (one.leader, one.high_watermark, set(handle.journal.state.suspects)) == ("1", 1, {"1"})
    cluster.catch_up("t", "1")
    assert set(handle.refresh().suspects) == {"1"}, "it has nothing to copy, and is no better for it"
    failure_detector_of(handle, session_timeout_ms=0).look(handle)
    one = handle.refresh().partitions[0]
    assert (one.leader, one.log_end, one.high_watermark) == ("2", 1, 1)
    assert [type(each).__name__ for step in history(handle.journal) for each in step.events].count("RowsLost") == 1
    cluster.catch_up("t", "1")
    write(cluster.log, handle, 3, {0: [b"3"]}, ALL, "all")
    assert handle.refresh().partitions[0].isr == ("1", "2", "0")
    assert cluster.read("t") == [b"0", b"3"]


def assert_fenced(handle, node, why):
    failure_detector_of(handle, session_timeout_ms=0).look(handle)
    assert handle.refresh().partitions[0].leader != node, why


@pytest.mark.parametrize("enabled", [True, False], ids=["by the topic's configuration", "by hand"])
def test_the_only_disk_left_leads_with_the_rows_that_it_really_has_once_it_is_renewed(
    tmp_path, enabled, caplog, monkeypatch
):
    cluster = LostCluster(tmp_path)
    config = KEEP | {"unclean.leader.election.enable": str(enabled).lower()}
    handle = cluster.log.create_topic("t", 1, parse(config), replicas=[("1", "2")])
    write(cluster.log, handle, 0, {0: [b"0"]}, ("1", "2"), "all")
    shutil.copytree(tmp_path / "node2", tmp_path / "backup")
    write(cluster.log, handle, 1, {0: [b"1"]}, ("1", "2"), "all")
    write(cluster.log, handle, 2, {0: [b"2", b"2"]}, ("1",), "all")
    lose_folder(tmp_path / "node1")
    lose_folder(tmp_path / "node2")
    shutil.move(tmp_path / "backup", tmp_path / "node2")
    failure_detector_of(handle, session_timeout_ms=0).look(handle)
    assert handle.refresh().partitions[0].leader is None
    if not enabled:
        command = operator_elections.election_of(handle, failure_detector_of(handle).unreachable)
        assert "node 2 lacks its newest files" in operator_elections.why_leaderless(handle, command, 0)
    assert not replica_file.is_set_back(cluster.log, "0")
    assert replica_file.is_set_back(cluster.log, "2")
    make_whole, leads = faults.make_whole, "an election might cut the rows that are left"
    monkeypatch.setattr(faults, "make_whole", lambda *given: assert_fenced(handle, "2", leads) or make_whole(*given))
    renew_set_back(cluster.log, "2")
    assert (handle.refresh().partitions[0].log_end_offsets["2"], handle.state.fenced) == (1, ())
    failure_detector_of(handle, session_timeout_ms=0).look(handle)
    if not enabled:
        command = operator_elections.election_of(handle, failure_detector_of(handle).unreachable)
        lost = operator_elections.would_lose(handle.refresh(), command)
        assert [(each.start, each.stop) for each in lost.values()] == [(1, 4)]
        handle.submit(command)
    one = handle.refresh().partitions[0]
    assert (one.leader, one.isr, one.log_end, one.high_watermark) == ("2", ("2",), 1, 1)
    told = "topic 't', partition 0: the new leader, node '2', lacks rows: offsets 1 to 3 are lost"
    assert (told in caplog.text) == enabled
    write(cluster.log, handle, 3, {0: [b"3"]}, ("2",), "all")
    assert cluster.read("t") == [b"0", b"3"]
    failure_detector_of(handle).look(handle)
    assert "2" not in handle.refresh().suspects
