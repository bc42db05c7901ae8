"""Queries on disks that fail: every row is read, or its loss is an error."""

import logging
import pickle

import pyarrow as pa
import pytest

from pyspark_log.writing.rows import Rows
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.replication.election import ElectLeaders
from pyspark_log_coordinator.sync.failure_detector import failure_detector_of
from pyspark_log_coordinator.sync.replica_file import live
from pyspark_log_storage.errors import DataLoss, LogError
from tests.support import direct
from tests.support.coordinator.replicated_topic import ALL
from tests.support.plain_log import PlainLog, flip_bit, record

# On disks, as Spark reads


@pytest.fixture
def disks(tmp_path):
    """Topic t on three disks, of which the first leads and the third is in the rack east."""
    log = PlainLog(tmp_path / "0")
    node_admin.join(log.log, str(tmp_path / "1"))
    node_admin.join(log.log, str(tmp_path / "2"), rack="east")
    log.log.create_topic("t", 1, replicas=[ALL])
    log.append("t", {0: [b"a", b"b"]})
    return tmp_path


def test_a_query_continues_if_the_leaders_copy_is_damaged(disks, caplog):
    (file,) = disks.glob("0/topics/t/*/append/*")
    flip_bit(file, 8 * 100)
    assert [row["value"] for row in direct.read(disks / "0", subscribe="t")] == [b"a", b"b"]
    assert "cannot be read from node '0'" in caplog.text


def test_a_query_reads_in_its_own_rack(disks):
    for number in (0, 1):
        for file in disks.glob(f"{number}/topics/t/*/append/*"):
            file.unlink()
    reader = direct.source(disks / "0", subscribe="t", **{"kafka.client.rack": "east"})
    made = reader.reader(reader.schema())
    (partition,) = pickle.loads(pickle.dumps(made.partitions()))
    assert partition.split.nodes[0].url == str(disks / "2")
    assert [value for batch in made.read(partition) for value in batch.column("value").to_pylist()] == [b"a", b"b"]


def test_a_streaming_query_reads_in_its_own_rack(disks):
    stream = direct.Stream(disks / "0", subscribe="t", startingOffsets="earliest", **{"client.rack": "east"})
    (partition,) = stream.reader.partitions(stream.start, stream.reader.latestOffset(stream.start, stream.limit))
    assert [each.node for each in partition.split.nodes] == ["2", "0", "1"]


def test_the_progress_of_a_query_counts_the_partitions_in_trouble(disks):
    stream = direct.Stream(disks / "0", subscribe="t", startingOffsets="earliest")

    def progress():
        stream.batch()
        found = stream.reader.reportLatestOffset()
        return found["underReplicatedPartitions"], found["offlinePartitions"]

    assert progress() == ("0", "0")
    log = PlainLog(disks / "0").log
    node_admin.set_fenced(log, "1", fenced=True)
    node_admin.update_topics(log, "1")
    assert progress() == ("1", "0")


@pytest.fixture
def leaderless(disks):
    """Topic u, which only a node that is away may lead. Two rows are on another node too, the third is not."""
    log = PlainLog(disks / "0")
    handle = log.log.create_topic("u", 1, replicas=[["1", "2"]])
    log.append("u", {0: [b"a", b"b"]})
    (disks / "2").rename(disks / "2.away")
    log.log.open(create=False)
    log.append("u", {0: [b"c"]})
    (disks / "2.away").rename(disks / "2")
    (disks / "1").rename(disks / "1.away")
    detector = failure_detector_of(handle, session_timeout_ms=0)
    for _ in range(2):
        detector.look(handle)
    partition = handle.refresh().partitions[0]
    assert (partition.leader, partition.isr, partition.high_watermark) == (None, ("1",), 3)
    return detector, handle


def test_a_leaderless_partition_is_read_from_the_nodes_that_answer(disks, leaderless):
    until = {"endingOffsets": '{"u": {"0": 2}}'}
    assert [row["value"] for row in direct.read(disks / "0", subscribe="u", **until)] == [b"a", b"b"]
    stream = direct.Stream(disks / "0", subscribe="u", startingOffsets="earliest", maxOffsetsPerTrigger=2)
    assert [row["value"] for row in stream.batch()] == [b"a", b"b"]
    assert stream.reader.reportLatestOffset()["offlinePartitions"] == "1"
    with pytest.raises(LogError, match=f"{disks}/1"):
        stream.batch()
    detector, handle = leaderless
    (disks / "1.away").rename(disks / "1")
    detector.look(handle)
    assert handle.refresh().partitions[0].leader == "1"
    assert [row["value"] for row in stream.batch()] == [b"c"]


def test_an_election_is_logged_with_its_partition_and_epoch(disks, leaderless, caplog):
    (disks / "1.away").rename(disks / "1")
    detector, handle = leaderless
    with caplog.at_level(logging.INFO, "pyspark_log"):
        detector.look(handle)
    (record,) = [each for each in caplog.records if each.levelno == logging.INFO]
    epoch = handle.journal.state.partitions[0].leader_epoch
    assert (record.topic, record.partition, record.node, record.epoch) == ("u", 0, "1", epoch)
    assert record.getMessage() == f"topic 'u', partition 0: node '1' leads from epoch {epoch} on"


def test_a_batch_is_logged_with_its_number(disks, caplog):
    log = PlainLog(disks / "0")
    rows = Rows(record([b"a"]), None, pa.array([0], pa.int32()))
    with caplog.at_level(logging.DEBUG, "pyspark_log"):
        log.append_rows("t", rows, claim=ProducerClaim("app", "", "", 7))
    (found,) = [each for each in caplog.records if hasattr(each, "batch")]
    entry = log.log.topic("t").journal.number
    assert (found.topic, found.producer, found.batch, found.entry) == ("t", "app", 7, entry)


@pytest.mark.parametrize("fails", [True, False])
def test_rows_that_were_read_and_then_cut_are_a_loss_even_if_others_took_their_offsets(disks, leaderless, fails):
    (disks / "1.away").rename(disks / "1")
    fail = {"failOnDataLoss": str(fails).lower()}
    stream = direct.Stream(disks / "0", subscribe="u", startingOffsets="earliest", **fail)
    assert [row["value"] for row in stream.batch()] == [b"a", b"b", b"c"]
    (disks / "1").rename(disks / "1.away")
    detector, handle = leaderless
    detector.look(handle)
    handle.submit(ElectLeaders(live(handle), detector.unreachable, unclean=True))
    PlainLog(disks / "0").append("u", {0: [b"d", b"e"]})
    assert handle.refresh().partitions[0].high_watermark == 4
    if fails:
        with pytest.raises(DataLoss, match="offset 3 of epoch 1 was truncated, that epoch ends at 2"):
            stream.batch()
    else:
        assert [(row["offset"], row["value"]) for row in stream.batch()] == [(2, b"d"), (3, b"e")]


def test_a_version_of_which_rows_were_cut_has_no_others_in_their_places(disks, leaderless):
    detector, handle = leaderless
    version = handle.journal.number
    detector.look(handle)
    handle.submit(ElectLeaders(live(handle), detector.unreachable, unclean=True))
    PlainLog(disks / "0").append("u", {0: [b"d", b"e"]})
    as_of = {"subscribe": "u", "versionAsOf": version}
    with pytest.raises(DataLoss, match="topic 'u', partition 0: rows of the version from offset 2 on were cut by an"):
        direct.read(disks / "0", **as_of)
    assert [row["value"] for row in direct.read(disks / "0", failOnDataLoss="false", **as_of)] == [b"a", b"b"]
    newest = {"subscribe": "u", "versionAsOf": handle.refresh() and handle.journal.number}
    assert [row["value"] for row in direct.read(disks / "0", **newest)] == [b"a", b"b", b"d", b"e"]
