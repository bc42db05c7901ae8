"""A cluster without any journal is rebuilt from its nodes' folders, and readers and writers continue."""

import shutil

import pytest

from pyspark_log_coordinator.audit import verify
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.maintenance import topic_cleanup, topic_description
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.model.topic_config import UNLIMITED, TopicConfig
from pyspark_log_coordinator.rebuild import execute
from pyspark_log_coordinator.topic.machine import CommitBatch, ElectLeaders, Holder, SequencedFile, Suspect, Suspicion
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import BatchMismatch, CorruptObject, InvalidInput, InvalidOption, StaleFile
from pyspark_log_storage.files.append_file import AppendFileWriter
from pyspark_log_storage.layout import MARKER, born_name
from pyspark_log_storage.objects import checkpoints
from pyspark_log_storage.stores.addresses import open_store
from tests.support.coordinator.lost_cluster import LostCluster, look
from tests.support.coordinator.replicated_topic import ALL, write
from tests.support.coordinator.stored_topic import batch_of
from tests.support.lost_folders import lose_folder
from tests.support.plain_log import flip_bit


@pytest.fixture
def cluster(tmp_path):
    """Topic t of two partitions with two segments and an unrolled chunk each, and topic u of one, all described."""
    cluster = LostCluster(tmp_path)
    cluster.create("t", 2, min_insync_replicas="2")
    for _ in range(2):
        cluster.append("t", 3)
        for partition in range(2):
            cluster.roll("t", partition=partition)
    cluster.append("t")
    cluster.create("u")
    cluster.append("u", 2)
    for topic in ("t", "u"):
        cluster.checkpoint(topic)
    return cluster


def sound(log):
    """Assert that nothing is wrong with the cluster and its topics."""
    reports = [verify.verify_cluster(log), *(verify.verify(log.topic(name)) for name in log.topics())]
    assert [each.findings for each in reports] == [[] for _ in reports]


def elect_uncleanly(handle, node):
    """Lose the other nodes for good, and elect this one."""
    state = handle.refresh()
    for other in set(ALL) - {node}:
        handle.submit(Suspect(other, state.incarnations[other]))
    state = handle.refresh()
    gone = tuple(Suspicion(*each) for each in state.suspects.items())
    handle.submit(ElectLeaders((Holder(node, state.incarnations[node]),), gone, unclean=True))


def staged(cluster, handle):
    """Return a file that no entry names yet."""
    state = handle.refresh()
    name = born_name(handle.journal.number, "0" * 32)
    chunks = ()
    for node in ALL:
        writer = AppendFileWriter(cluster.log.node_store(node).open_write(handle.append_file(name)))
        writer.append(0, batch_of([b"late"]), schema.RECORD_ID, "none")
        writer.close()
        chunks = tuple(writer.chunks)
    return SequencedFile(name, tuple(Holder(node, state.incarnations[node]) for node in ALL), chunks)


@pytest.mark.parametrize("nodes", [ALL, ("0", "1"), ("1", "2"), ("0",), ("2",)], ids="+".join)
def test_everything_described_is_restored_from_any_nodes_and_writers_go_on(cluster, nodes):
    before = {name: cluster.log.topic(name).journal.state for name in ("t", "u")}
    cluster.lose_journals()
    for node in set(ALL) - set(nodes):
        cluster.lose_node(node)
    found = cluster.rebuild(nodes, journals_are_lost="0" not in nodes)
    assert (found.lost, found.unplaced, found.damaged) == (0, (), ())
    cluster.check()
    sound(cluster.log)
    for name, old in before.items():
        new = cluster.log.topic(name).journal.state
        assert (new.config, new.schemas, new.topic_id) == (old.config, old.schemas, old.topic_id)
        for one, was in zip(new.partitions, old.partitions, strict=True):
            assert one.high_watermark == one.log_end == was.log_end
            assert one.replicas == one.isr == nodes
            assert one.leader_epoch > was.leader_epoch
    cluster.append("t", 3, on=nodes)
    cluster.roll("t")
    cluster.check()
    topic_cleanup.clean_up_topic(cluster.log.topic("t"))
    sound(cluster.log)


def test_journals_may_be_on_several_nodes_afterwards(cluster):
    cluster.lose_journals()
    cluster.rebuild(journals=ALL)
    assert cluster.log.journals.nodes is not None
    cluster.append("t")
    cluster.check()
    again = Log(open_store(cluster.url("2")), real_environment())
    again.open(create=False)
    assert again.topic("t").journal.number == cluster.log.topic("t").journal.number
    sound(again)


def test_rows_after_the_last_description_are_set_aside_and_counted(cluster):
    name = cluster.append("t", 2)
    key = cluster.log.topic("t").append_file(name)
    cluster.lose_journals()
    found = cluster.rebuild()
    assert [(each.topic, each.nodes, each.rows) for each in found.unplaced] == [("t", ALL, 4), ("t", ALL, 4)]
    assert key in {each.key for each in found.unplaced}
    for node in ALL:
        assert [each.name for each in cluster.set_aside(node)] == sorted(each.key[-53:] for each in found.unplaced)
    topic_cleanup.clean_up_topic(cluster.log.topic("t"))
    assert len(cluster.set_aside("0")) == 2
    cluster.check(lost={("t", 0): 4, ("t", 1): 4})


def test_rows_in_segments_are_restored_without_a_description(cluster):
    cluster.append("u")
    cluster.roll("u", 2)
    for each in cluster.path.glob("node*/topics/*/*/description"):
        each.unlink()
    cluster.lose_journals()
    found = cluster.rebuild()
    cluster.check(lost={("t", 0): 2, ("t", 1): 2, ("u", 0): 2})
    state = cluster.log.topic("t").journal.state
    assert state.config == TopicConfig(retention_ms=UNLIMITED)  # the default would drop old rows at once
    assert found.lost == 4  # the HW of t was in the checkpoint
    assert {each.topic for each in found.unplaced} == {"t", "u"}
    cluster.forget("t", 2)
    cluster.append("t")
    cluster.check(lost={("u", 0): 2})


def test_a_damaged_copy_is_replaced_from_another_node(cluster):
    names = [each.name for each in cluster.log.topic("t").journal.state.partitions[0].segments]
    flip_bit(cluster.segment("0", "t", names[0]), 8 * 100)
    flip_bit(cluster.segment("1", "t", names[1]), 8 * 100)
    cluster.segment("2", "t", names[1]).unlink()
    cluster.segment("2", "t", names[0]).with_suffix(".index").unlink()
    cluster.lose_journals()
    found = cluster.rebuild()
    assert found.lost == 0
    cluster.check()
    # No node had all of it: one was completed, the others lack what was damaged.
    assert [each.name for each in cluster.set_aside("1")] == [f"{names[1]}.index", f"{names[1]}.log"]
    leader = cluster.log.topic("t").journal.state.partitions[0].leader
    assert leader is not None
    for node in ALL:
        cluster.catch_up("t", node)
    assert cluster.log.topic("t").journal.state.partitions[0].isr == ALL
    sound(cluster.log)


def test_a_segment_damaged_on_every_node_ends_the_partition_and_is_not_deleted(cluster):
    second = cluster.log.topic("t").journal.state.partitions[0].segments[1].name
    for node in ALL:
        flip_bit(cluster.segment(node, "t", second), 8 * 100)
    cluster.lose_journals()
    found = cluster.rebuild()
    assert found.lost == 8
    cluster.check(lost={("t", 0): 8})
    for node in ALL:
        kept = [each.name for each in cluster.set_aside(node)]
        assert {f"{second}.index", f"{second}.log"} <= set(kept)
        # Its rows may be in the append files that it was made of, as long as these are there.
        assert len(kept) == 2 + 6


def test_a_segment_with_rows_that_an_election_cut_is_not_used(cluster):
    """Node 2 was elected uncleanly while 0 and 1 were missing, and the rows that it lacked were cut."""
    handle = cluster.log.topic("u")
    cluster.roll("u")
    cluster.append("u", on=("0", "1"))
    zombie = cluster.roll("u")
    elect_uncleanly(handle, "2")
    assert handle.refresh().partitions[0].leader == "2"
    cluster.forget("u", 2)
    assert cluster.read("u") == cluster.expected["u", 0]
    cluster.append("u", on=("2",))
    cluster.checkpoint("u")
    cluster.lose_journals()
    cluster.rebuild()
    cluster.check()
    assert [each.name for each in cluster.set_aside("0")][:2] == [f"{zombie}.index", f"{zombie}.log"]


def test_the_replay_of_a_partly_lost_batch_is_an_error(cluster):
    last = cluster.log.topic("u").journal.state.files[-1].name
    cluster.lose_journals()
    for node in ALL:
        (cluster.folder(node, "u") / "append" / last).unlink()
    assert cluster.rebuild().lost == 2
    cluster.check(lost={("u", 0): 2})
    with pytest.raises(BatchMismatch, match=r"lost|cut"):
        write(cluster.log, cluster.log.topic("u"), cluster.batches - 1, {0: [b"again", b"again"]}, ALL, "all")


def test_a_process_from_before_the_rebuild_appends_nothing_and_reads_the_rebuilt_log(cluster):
    """It knows the old journal, and has staged files."""
    old = cluster.log
    handle = old.topic("u")
    stale = staged(cluster, handle)
    cluster.lose_journals()
    cluster.rebuild()
    with pytest.raises(StaleFile):
        handle.submit(CommitBatch(ProducerClaim("q", "q", "r", 100), (stale,), acks="all"))
    cluster.log = old
    cluster.check()


def test_the_disk_of_a_node_that_was_not_given_is_refused_later(cluster):
    cluster.lose_journals()
    cluster.rebuild(("0", "1"))
    with pytest.raises(InvalidInput, match="ids are never reused"):
        node_admin.join(cluster.log, cluster.url("2"))
    cluster.lose_node("2")
    node, _ = node_admin.join(cluster.log, cluster.url("2"))
    assert node.node_id == "3"


def test_a_deleted_topic_stays_deleted(cluster):
    cluster.log.delete_topic("u")
    lose_folder(cluster.path / "node0" / "cluster")
    found = cluster.rebuild()
    assert list(cluster.log.topics()) == ["t"]
    assert [(folder.topic, why) for folder, why in found.left_out] == [("u", "it was deleted")]


def test_a_cluster_whose_journal_can_be_read_is_refused(cluster):
    with pytest.raises(InvalidOption, match="can be read: there is nothing to rebuild"):
        cluster.survey()


def test_a_journal_that_may_be_alive_elsewhere_needs_journals_lost(cluster):
    found = cluster.survey(("1", "2"))
    assert found.journals_may_live is not None
    with pytest.raises(InvalidOption, match="--journals-lost"):
        execute.rebuild(found, real_environment())
    cluster.check()


def test_a_dry_run_changes_nothing(cluster):
    cluster.lose_journals()
    before = {each: each.stat().st_mtime_ns for each in cluster.path.rglob("*")}
    cluster.survey()
    assert {each: each.stat().st_mtime_ns for each in cluster.path.rglob("*")} == before


def test_a_folder_without_a_marker_and_one_of_another_cluster_are_refused(cluster, tmp_path):
    cluster.lose_journals()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidOption, match="no marker"):
        look(cluster.url("0"), str(tmp_path / "empty"))
    other = LostCluster(tmp_path / "other")
    with pytest.raises(InvalidOption, match="give the nodes of one"):
        look(cluster.url("0"), other.url("1"))
    with pytest.raises(InvalidOption, match="are both node '0'"):
        look(cluster.url("0"), other.url("0"), cluster.url("0"))


def test_a_root_whose_marker_is_lost_with_the_journals_becomes_a_new_cluster_with_its_topics(cluster):
    former, offsets = cluster.log.cluster_id, len(cluster.expected["t", 0])
    cluster.lose_journals()
    (cluster.path / "node0" / MARKER).unlink()
    found = look(cluster.url("0"))
    assert found.journals_may_live is not None
    execute.rebuild(found, real_environment(), journals_are_lost=True)
    log = Log(open_store(cluster.url("0")), real_environment())
    log.open(create=False)
    assert (log.cluster_id == former, list(log.nodes), sorted(log.topics())) == (False, ["0"], ["t", "u"])
    assert [each.high_watermark for each in log.topic("t").partitions] == [offsets, offsets]
    sound(log)


@pytest.mark.parametrize("how", ["damaged", "lost"])
def test_a_copy_that_is_bad_since_the_survey_is_skipped_for_another(cluster, how):
    first, second = (each.name for each in cluster.log.topic("t").journal.state.partitions[0].segments)
    for node, name in (("0", first), ("1", first), ("2", second)):
        cluster.segment(node, "t", name).unlink()
    cluster.lose_journals()
    found = cluster.survey()
    if how == "damaged":
        flip_bit(cluster.segment("0", "t", second), 8 * 100)
    else:
        cluster.segment("0", "t", second).unlink()
    execute.rebuild(found, real_environment())
    cluster.open(found)
    cluster.check()
    one = cluster.log.topic("t").journal.state.partitions[0]
    assert [[holder.node for holder in each.holders] for each in one.segments] == [["2"], ["1", "2"]]
    for node in ALL:
        cluster.catch_up("t", node)
    sound(cluster.log)


@pytest.mark.parametrize("between", [(), ("0",), ("0", "1")], ids="+".join)
def test_an_append_file_of_which_no_node_has_every_chunk_is_made_of_the_whole_ones(cluster, between):
    cluster.create("v", 3)
    name = cluster.append("v")
    chunks = [chunk for each in cluster.log.topic("v").journal.state.partitions for chunk in each.chunks]
    cluster.roll("v", partition=1)  # its chunk, between the others, is not needed any more
    cluster.checkpoint("v")
    paths = {node: cluster.folder(node, "v") / "append" / name for node in ALL}
    for number, nodes in ((0, ("0", "1")), (1, between), (2, ("2",))):
        chunk = chunks[number]
        for node in nodes:
            flip_bit(paths[node], 8 * (chunk.position + chunk.length // 2))
    damaged = [paths[node].read_bytes() for node in ALL]
    cluster.lose_journals()
    found = cluster.rebuild()
    assert (found.lost, found.unplaced) == (0, ())
    cluster.check()
    assert [each.read_bytes() for node in ALL for each in cluster.set_aside(node)] == damaged
    for node in ALL:
        cluster.catch_up("v", node)
    assert all(each.isr == ALL for each in cluster.log.topic("v").journal.state.partitions)
    sound(cluster.log)


def test_a_description_or_a_checkpoint_in_the_folder_of_another_topic_is_damage(cluster):
    for node, name in (("0", topic_description.NAME), ("1", checkpoints.REPLICATION)):
        shutil.copy(cluster.folder(node, "t") / name, cluster.folder(node, "u") / name)
    (cluster.folder("1", "u") / topic_description.NAME).unlink()
    cluster.lose_journals()
    found = cluster.rebuild()
    assert found.lost == 0
    one, other = sorted(found.damaged)
    assert "it describes topic 't'" in one
    assert "it names t-0" in other
    cluster.check()


def test_a_copy_that_is_bad_since_the_survey_ends_the_rebuild_if_there_is_no_other(cluster):
    first, second = (each.name for each in cluster.log.topic("t").journal.state.partitions[0].segments)
    for node, name in (("0", first), ("1", first), ("1", second), ("2", second)):
        cluster.segment(node, "t", name).unlink()
    cluster.lose_journals()
    found = cluster.survey()
    flip_bit(cluster.segment("0", "t", second), 8 * 100)
    with pytest.raises(CorruptObject, match=second):
        execute.rebuild(found, real_environment())
    assert cluster.rebuild().lost == 8


def test_of_two_topics_of_one_name_the_newer_is_rebuilt(cluster):
    former = cluster.folder("0", "u").name
    for node in ALL:
        shutil.copytree(cluster.folder(node, "u"), cluster.path / f"kept{node}")
    cluster.log.delete_topic("u")
    del cluster.expected["u", 0]
    cluster.create("u")
    cluster.append("u")
    cluster.checkpoint("u")
    for node in ALL:
        lose_folder(cluster.path / f"node{node}" / "topics" / "u" / former)
        shutil.move(cluster.path / f"kept{node}", cluster.path / f"node{node}" / "topics" / "u" / former)
    cluster.lose_journals()
    found = cluster.rebuild()
    assert [folder.topic_id for folder, _ in found.left_out] == [former]
    cluster.check()
