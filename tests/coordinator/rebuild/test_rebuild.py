"""A cluster without any journal is rebuilt from its nodes' folders, and readers and writers continue."""

import shutil

import pytest

from pyspark_log_coordinator.audit import verify
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log import node_admin, topic_description
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.maintenance import topic_cleanup
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.rebuild import execute
from pyspark_log_coordinator.topic.sequencing import CommitBatch
from pyspark_log_storage.errors import InvalidInput, InvalidOption, StaleFile
from pyspark_log_storage.layout import MARKER
from pyspark_log_storage.stores.addresses import open_store
from tests.support.coordinator.lost_cluster import LostCluster, look
from tests.support.coordinator.replicated_topic import ALL, staged
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


@pytest.mark.parametrize("nodes", [ALL, ("0", "1"), ("1", "2"), ("0",), ("2",)], ids="+".join)
def test_everything_described_is_restored_from_any_nodes_and_writers_go_on(cluster, nodes):
    before = {name: cluster.log.topic(name).journal.state for name in ("t", "u")}
    cluster.lose_journals()
    for node in set(ALL) - set(nodes):
        cluster.lose_node(node)
    found = cluster.rebuild(nodes, journals_are_lost="0" not in nodes)
    assert (found.lost, found.damaged, [each.newer for each in found.topics]) == (0, (), [{}, {}])
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


def test_rows_after_the_newest_description_are_lost_and_their_files_stay_for_a_day(cluster):
    name = cluster.append("t", 2)
    handle = cluster.log.topic("t")
    key = handle.append_file(name)
    cluster.lose_journals()
    found = cluster.rebuild()
    assert found.lost == 0, "of the rows that the description names"
    [newer] = [each.newer for each in found.topics if each.state.name == "t"]
    assert (len(newer), newer[key]) == (2, cluster.log.node_store("0").size(key))
    topic_cleanup.clean_up_topic(cluster.log.topic("t"))
    assert all((cluster.path / f"node{node}" / key).exists() for node in ALL)
    cluster.check(lost={("t", 0): 4, ("t", 1): 4})
    cluster.forget("t", 4)
    cluster.append("t")
    cluster.check()


@pytest.mark.parametrize("what", ["cluster", "cluster, and the description on every node"])
def test_if_only_the_journal_of_the_cluster_is_lost_every_row_is_kept(cluster, what):
    cluster.append("t", 2)
    lose_folder(cluster.path / "node0" / "cluster")
    if "description" in what:
        for each in cluster.path.glob("node*/topics/*/*/description"):
            each.unlink()
    assert cluster.rebuild().lost == 0
    cluster.check()
    sound(cluster.log)


def test_a_topic_that_no_node_describes_is_left_as_it_is(cluster):
    for each in cluster.path.glob("node*/topics/u/*/description"):
        each.unlink()
    cluster.lose_journals()
    found = cluster.rebuild()
    [(folder, why)] = found.left_out
    assert folder.topic == "u"
    assert "no node has a description of it" in why
    assert list(cluster.log.topics()) == ["t"]
    assert len(list(cluster.folder("0", "u").glob("append/*"))) == 2
    del cluster.expected["u", 0]
    cluster.check()


def test_a_segment_damaged_on_every_node_ends_its_partition_and_the_report_says_where(cluster):
    second = cluster.log.topic("t").journal.state.partitions[0].segments[1].name
    for node in ALL:
        flip_bit(cluster.segment(node, "t", second), 8 * 100)
    cluster.lose_journals()
    found = cluster.rebuild()
    [loss] = [loss for each in found.topics for loss in each.losses]
    assert (loss.partition, loss.offset, loss.rows, found.lost) == (0, 6, 8, 8)
    assert loss.file.endswith(second)
    cluster.check(lost={("t", 0): 8})
    topic_cleanup.clean_up_topic(cluster.log.topic("t"))
    assert all(cluster.segment(node, "t", second).exists() for node in ALL)


def test_a_process_from_before_the_rebuild_appends_nothing_and_reads_the_rebuilt_log(cluster):
    """It knows the old journal, and has staged files."""
    old = cluster.log
    handle = old.topic("u")
    stale = staged(cluster.log, handle, {0: [b"late"]}, ALL)
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


def test_a_journal_that_may_be_alive_elsewhere_needs_journals_lost(cluster):
    found = cluster.survey(("1", "2"))
    assert found.journals.may_live is not None
    with pytest.raises(InvalidOption, match="--journals-lost"):
        execute.rebuild(found, real_environment())
    cluster.check()


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
    assert found.journals.may_live is not None
    execute.rebuild(found, real_environment(), journals_are_lost=True)
    log = Log(open_store(cluster.url("0")), real_environment())
    log.open(create=False)
    assert (log.cluster_id == former, list(log.nodes), sorted(log.topics())) == (False, ["0"], ["t", "u"])
    assert [each.high_watermark for each in log.topic("t").partitions] == [offsets, offsets]
    sound(log)


def test_a_description_in_the_folder_of_another_topic_is_damage(cluster):
    name = topic_description.NAME
    shutil.copy(cluster.folder("0", "t") / name, cluster.folder("0", "u") / name)
    cluster.lose_journals()
    found = cluster.rebuild()
    [wrong] = found.damaged
    assert "it describes topic 't'" in wrong
    assert found.lost == 0
    cluster.check()


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
