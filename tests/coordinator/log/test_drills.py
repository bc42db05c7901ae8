"""Drills: a cluster whose stores have faults because an address says so."""

import contextlib

import pytest

from pyspark_log_coordinator.journal import journal_nodes
from pyspark_log_coordinator.log import bootstrap, node_admin
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_storage.errors import LogError, StoreUnfit
from pyspark_log_storage.stores.addresses import absolute_url, open_store
from tests.support.coordinator.several_nodes import one_after_another
from tests.support.coordinator.small_topic import TopicClient, seeded

PATIENT = RetryPolicy(retries=50)


def log_at(address):
    """The log at an address, whose nodes are opened by theirs."""
    return Log([open_store(absolute_url(str(address)))], seeded(1000), probe=one_after_another)


def test_a_writer_and_a_reader_in_a_drill_do_their_work(tmp_path):
    TopicClient(log_at(tmp_path)).create()
    log = log_at(f"chaos+{tmp_path}?seed=3&lost_answers=0.04&slow_down=0.04&unavailable=0.04")
    batch = tries = 0
    while batch < 12:
        tries += 1
        assert tries < 200
        with contextlib.suppress(LogError):
            TopicClient(log).write("p", batch, PATIENT)
            batch += 1
    assert tries > 12, "nothing went wrong"
    assert TopicClient(log_at(tmp_path)).check("p", 12) == 12


def test_a_node_is_taken_into_a_drill_and_out_again(tmp_path):
    log = log_at(tmp_path / "whole")
    log.open(create=True)
    node_admin.join(log, str(tmp_path / "disk"))
    log.create_topic("t", 2)
    faulty = absolute_url(f"chaos+{tmp_path}/disk?unavailable=1")
    with pytest.raises(LogError, match="on purpose"):
        node_admin.renew(log, "1", faulty)
    faulty = absolute_url(f"chaos+{tmp_path}/disk?seed=1&lost_answers=0.01")
    node, changed = node_admin.renew(log, "1", faulty)
    assert (node.url, changed) == (faulty, True)
    assert log.node_store("1").url == faulty
    node, changed = node_admin.renew(log, "1", str(tmp_path / "disk"))
    assert (node.url, changed) == (str(tmp_path / "disk"), True)


@pytest.mark.parametrize("lie", ["ignored_conditions", "torn_writes"])
def test_a_store_that_lies_is_refused_as_a_cluster_and_as_a_node(tmp_path, lie):
    faulty = absolute_url(f"chaos+{tmp_path}/faulty?seed=1&{lie}=1")
    with pytest.raises(StoreUnfit, match="choose another kind of store"):
        log_at(faulty).open(create=True)
    log = log_at(tmp_path / "whole")
    log.open(create=True)
    with pytest.raises(StoreUnfit, match="choose another kind of store"):
        node_admin.join(log, faulty)
    assert list(log.cluster.state.nodes) == ["0"]


def test_a_store_that_lies_is_refused_as_a_journal_node(tmp_path):
    whole = [open_store(str(tmp_path / name)) for name in "ab"]
    faulty = open_store(absolute_url(f"chaos+{tmp_path}/faulty?seed=1&torn_writes=1"))
    with pytest.raises(StoreUnfit, match="choose another kind of store"):
        bootstrap.mark([*whole, faulty], seeded(1000))
    assert [journal_nodes.read(each) for each in whole] == [None, None]
