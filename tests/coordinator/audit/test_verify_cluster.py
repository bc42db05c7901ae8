"""Verify of a cluster: each kind of damage to its journal is named."""

import msgspec
import pytest

from pyspark_log_coordinator.audit.verify import verify_cluster
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.maintenance.cluster_cleanup import clean_up_cluster
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.topic import machine as topic_module
from pyspark_log_coordinator.topic.sequencing import BatchSequenced
from pyspark_log_storage import layout
from tests.support.coordinator.audited_topic import finding, said


@pytest.fixture
def cluster(topic, monkeypatch):
    """The topic in a cluster whose journal has 40 entries and five snapshots, after two topics were deleted."""
    for number in range(16):
        topic.log.create_topic(f"topic-{number}", 1)
    for number in (3, 5):
        topic.log.delete_topic(f"topic-{number}")
    for number in range(100, 120):
        topic.log.create_topic(f"topic-{number}", 1)
    assert topic.log.cluster.number == 40
    return topic


def audit_cluster(topic):
    """Return the report of verify for the cluster in a new process."""
    return verify_cluster(topic.open())


def test_a_sound_cluster_is_sound(cluster):
    report = audit_cluster(cluster)
    assert report.findings == []
    assert (report.topic, report.sound, report.entries, report.orphans) == (None, True, 40, [])


def test_a_cluster_is_sound_after_deleted_topics_were_cleaned_up_and_its_journal_was_trimmed(cluster):
    cluster.clock.now_ms = 10**9
    assert len(clean_up_cluster(cluster.log).deleted_topics) == 2
    report = audit_cluster(cluster)
    assert report.sound
    assert report.entries < 40


def test_the_topics_that_a_cluster_restored_from_an_old_copy_does_not_know_are_named(cluster):
    for key in list(cluster.store.list("cluster/")):
        if "/snapshots/" in key or key.rsplit("/", 1)[1] > layout.number(38):
            cluster.store.delete(key)
    [one, other] = audit_cluster(cluster).findings
    assert ("topic-118/" in one.what, "topic-119/" in other.what) == (True, True)
    assert "does not know it" in one.detail


def test_a_producer_whose_batches_do_not_rise_is_named(topic):
    lenient = msgspec.structs.replace(topic_module.MACHINE, decide=lambda _, events, __: events)
    journal = Journal(topic.log.journals.place, f"{topic.folder}journal/", lenient)
    journal.submit([BatchSequenced(ProducerClaim("q", "q", "r", 3), 0, "all", (), 0)])
    found = finding(topic)
    assert said(found) == f"journal entry {journal.number}: producer 'q' wrote batch 3 after 12"
