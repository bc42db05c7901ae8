"""Damaged and lost copies in real files: found by scrubber, catch-up, repair and failure detector, and copied again."""

import shutil

import pytest

from pyspark_log_coordinator.audit import verify
from pyspark_log_coordinator.journal.history import history
from pyspark_log_coordinator.log.node_admin import set_fenced
from pyspark_log_coordinator.model.topic_config import parse
from pyspark_log_coordinator.sync import catch_up, damage_reports, operator_elections, replica_file, scrubber
from pyspark_log_coordinator.sync.failure_detector import failure_detector_of
from pyspark_log_coordinator.topic.machine import DeleteRecords
from pyspark_log_storage import layout
from pyspark_log_storage.errors import NodeMissing, NotEnoughReplicas, StoreUnavailable
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


def reported(cluster):
    """Return the nodes whose copies were reported."""
    journal = cluster.log.topic("t").journal
    return [each.node for step in history(journal) for each in step.events if type(each).__name__ == "CopiesDamaged"]


def paths(cluster, node):
    """Return the file of the segment and the newest append file of a node."""
    folder = cluster.folder(node, "t")
    rolled = folder / "0" / layout.segment_file(one(cluster).segments[0].name)
    return rolled, folder / "append" / state_of(cluster).files[-1].name


def is_sound(cluster):
    assert verify.verify(cluster.log.topic("t")).findings == []
    assert one(cluster).isr == ALL
    cluster.check()


# Scrubbing


@pytest.mark.parametrize("node", ALL[:2])
@pytest.mark.parametrize("how", ["damaged", "gone"])
def test_damaged_and_lost_copies_are_found_and_copied_again(cluster, node, how):
    spoiled = paths(cluster, node)
    whole = [path.read_bytes() for path in spoiled]
    for path in spoiled:
        flip_bit(path, 8 * 100) if how == "damaged" else path.unlink()
    done = scrubber.scrub(cluster.log, node)
    assert (done.objects, done.failures) == (3, ())
    # What is gone is put back together with the first that was found.
    assert len(done.repaired) == (2 if how == "damaged" else 1)
    assert [path.read_bytes() for path in spoiled] == whole
    assert set(reported(cluster)) == {node}
    is_sound(cluster)
    number, told = cluster.log.topic("t").journal.number, []
    again = scrubber.scrub(cluster.log, node, told.append)
    assert (again.objects, again.bytes, again.repaired) == (3, sum(told), ())
    assert cluster.log.topic("t").journal.number == number


def test_bytes_behind_the_end_of_a_segment_are_damage(cluster):
    path = paths(cluster, "1")[0]
    whole = path.read_bytes()
    path.write_bytes(whole + b"more")
    done = scrubber.scrub(cluster.log, "1")
    assert (len(done.repaired), done.failures, reported(cluster)) == (1, (), ["1"])
    assert path.read_bytes() == whole
    is_sound(cluster)


def test_a_copy_that_is_reported_and_cannot_be_copied_again_is_a_failure_of_the_scrub(cluster, monkeypatch):
    flip_bit(paths(cluster, "1")[1], 8 * 100)
    unanswered = catch_up.CopyResult(0, 0, (StoreUnavailable("", "the file", "no holder answers any more"),))
    monkeypatch.setattr(catch_up, "catch_up", lambda *_: unanswered)
    done = scrubber.scrub(cluster.log, "1")
    assert (done.repaired, reported(cluster)) == ((), ["1"])
    assert [each.endswith("no holder answers any more") for each in done.failures] == [True]


def test_a_file_that_expires_during_a_scrub_is_not_taken_for_lost(cluster, monkeypatch):
    check = replica_file.check

    def expire_first(store, piece, moved):
        monkeypatch.undo()
        cluster.log.topic("t").submit(DeleteRecords(0, one(cluster).log_end))
        (cluster.path / "node1" / piece.stored_key).unlink()
        check(store, piece, moved)

    monkeypatch.setattr(replica_file, "check", expire_first)
    done = scrubber.scrub(cluster.log, "1")
    assert (done.objects, done.repaired, done.failures, reported(cluster)) == (2, (), (), [])


def test_a_file_without_a_whole_copy_stays_and_is_reported(cluster):
    before = {}
    for node in ALL:
        path = paths(cluster, node)[1]
        flip_bit(path, 8 * 100)
        before[path] = path.read_bytes()
    done = scrubber.scrub(cluster.log, "1")
    (failure,) = done.failures
    assert paths(cluster, "1")[1].name in failure
    assert {path: path.read_bytes() for path in before} == before
    assert (reported(cluster), one(cluster).isr) == ([], ALL)


def test_a_copy_that_the_isr_cannot_do_without_is_replaced_in_place(cluster):
    cluster.create("u", min_insync_replicas="3")
    name = cluster.append("u")
    path = cluster.folder("1", "u") / "append" / name
    whole = path.read_bytes()
    flip_bit(path, 8 * 100)
    number = cluster.log.topic("u").journal.number
    assert [key.rsplit("/", 1)[1] for key in scrubber.scrub(cluster.log, "1").repaired] == [name]
    assert path.read_bytes() == whole
    assert cluster.log.topic("u").refresh().partitions[0].isr == ALL
    assert cluster.log.topic("u").journal.number == number


def test_a_disk_that_was_read_wrongly_once_is_not_reported(cluster, monkeypatch):
    store, read = cluster.log.node_store("1"), type(cluster.log.node_store("1")).read

    def wrongly(self, key, *place):
        data = bytearray(read(self, key, *place))
        if self is store and "/append/" in key:
            monkeypatch.undo()
            data[100] ^= 1
        return bytes(data)

    monkeypatch.setattr(type(store), "read", wrongly)
    done = scrubber.scrub(cluster.log, "1")
    assert type(store).read is read
    assert (done.repaired, done.failures, reported(cluster)) == ((), (), [])


def test_nothing_is_copied_to_a_disk_that_is_not_mounted(cluster):
    mounted = cluster.path / "node1"
    mounted.rename(cluster.path / "elsewhere")
    mounted.mkdir()
    with pytest.raises(NodeMissing, match="is its disk mounted"):
        scrubber.scrub(cluster.log, "1")
    assert [path for path in mounted.rglob("*") if path.is_file()] == []
    assert reported(cluster) == []


# Copying and repair


def test_a_follower_reports_the_source_that_it_found_damaged_once_another_was_whole(cluster):
    name = cluster.append("t", on=("0", "1"))
    paths = [cluster.folder(node, "t") / "append" / name for node in ("0", "1")]
    for path in paths:
        flip_bit(path, 8 * 100)
    cluster.catch_up("t", "2")
    assert (reported(cluster), one(cluster).isr) == ([], ("0", "1"))
    flip_bit(paths[1], 8 * 100)
    cluster.catch_up("t", "2")
    assert reported(cluster) == ["0"]
    assert (one(cluster).leader, one(cluster).isr) == ("1", ("1", "2"))
    cluster.catch_up("t", "0")
    is_sound(cluster)


def test_files_that_are_gone_because_the_disk_was_unmounted_meanwhile_are_not_reported(cluster, monkeypatch):
    handle, store = cluster.log.topic("t"), cluster.log.node_store("1")
    listed = type(store).list

    def unmount(self, prefix, after=""):
        if self is store:
            (cluster.path / "node1").rename(cluster.path / "unmounted")
            (cluster.path / "node1").mkdir()
        return listed(self, prefix, after)

    monkeypatch.setattr(type(store), "list", unmount)
    damage_reports.report_lost(handle, "1")
    assert (cluster.path / "unmounted").exists()
    assert (reported(cluster), one(cluster).isr) == ([], ALL)


# A leader's disk is restored from an old backup


def test_a_replica_with_every_row_leads_at_once(tmp_path):
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
    one = handle.refresh().partitions[0]
    assert (one.leader, one.leader_epoch, one.isr, one.log_end) == ("2", 1, ("2", "0"), 2)
    assert handle.state.suspects == {}
    write(cluster.log, handle, 2, {0: [b"2"]}, ("2",), "1")
    for node in ("1", "0"):
        cluster.catch_up("t", node)
    assert handle.refresh().partitions[0].isr == ("1", "2", "0")
    assert cluster.read("t") == [b"0", b"1", b"2"]


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


def test_rows_of_which_the_only_copy_is_damaged_are_given_up_by_fencing_their_leader(tmp_path):
    cluster = LostCluster(tmp_path)
    handle = cluster.log.create_topic("t", 1, parse(KEEP), replicas=[("1", "2", "0")])
    for batch, on in enumerate((ALL, ("1",), ("1",))):
        write(cluster.log, handle, batch, {0: [b"%d" % batch]}, on, "1")
    flip_bit(cluster.folder("1", "t") / "append" / handle.refresh().files[1].name, 100)
    set_fenced(cluster.log, "1", fenced=True)
    failure_detector_of(handle).look(handle)
    set_fenced(cluster.log, "1", fenced=False)
    for node in ALL:
        cluster.catch_up("t", node)
    write(cluster.log, handle, 3, {0: [b"3"]}, ALL, "all")
    assert handle.refresh().partitions[0].isr == ("1", "2", "0")
    assert cluster.read("t") == [b"0", b"3"]
    assert verify.verify(handle).findings == []


@pytest.mark.parametrize("enabled", [True, False], ids=["by the topic's configuration", "by hand"])
def test_the_only_disk_left_leads_with_the_rows_that_it_really_has(tmp_path, enabled, caplog):
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
    if not enabled:
        assert handle.refresh().partitions[0].leader is None
        command = operator_elections.election_of(handle, failure_detector_of(handle).unreachable)
        assert [
            (each.start, each.stop) for each in operator_elections.would_lose(handle.refresh(), command).values()
        ] == [(1, 4)]
        handle.submit(command)
    one = handle.refresh().partitions[0]
    assert (one.leader, one.isr, one.log_end, one.high_watermark) == ("2", ("2",), 1, 1)
    told = "topic 't', partition 0: the new leader, node '2', lacks rows: offsets 1 to 3 are lost"
    assert (told in caplog.text) == enabled
    write(cluster.log, handle, 3, {0: [b"3"]}, ("2",), "all")
    assert cluster.read("t") == [b"0", b"3"]
    failure_detector_of(handle).look(handle)
    assert "2" not in handle.refresh().suspects
