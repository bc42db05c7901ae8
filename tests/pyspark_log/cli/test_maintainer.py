"""How often `node run` maintains topics in a bucket, and what it costs while nothing changes."""

import pytest

from pyspark_log.cli.nodes import maintain, node_run
from pyspark_log.opening import own_log
from pyspark_log_storage.errors import StoreUnavailable
from tests.support.counted_bucket import CountedCluster

MINUTE = 60


class Watched:
    """The job over four topics, round by round."""

    def __init__(self, cluster, monkeypatch):
        self.cluster = cluster
        self.log = own_log(cluster.path)
        self.job = node_run.Maintainer(json=True)
        self.pause = node_run.MAINTAIN.first
        self.done = []
        for act in (maintain.maintain_topic, maintain.maintain_cluster):
            monkeypatch.setattr(maintain, act.__name__, self.noted(act))

    def noted(self, act):
        def noted(log, name=None, **how):
            self.done.append(name)
            return act(log, name, **how) if name else act(log)

        return noted

    def round(self):
        """One round, and the pause after it."""
        is_busy = self.job.maintain(self.log, [])
        self.pause = node_run.MAINTAIN.after(self.pause, is_busy=is_busy, is_remote=True)

    def rounds(self, minutes):
        """Return what was maintained in this time."""
        self.done.clear()
        end = self.cluster.now + minutes * MINUTE
        while self.cluster.now + self.pause <= end:
            self.cluster.now += self.pause
            self.round()
        self.cluster.now = end
        return [each for each in self.done if each is not None]


@pytest.fixture
def cluster(monkeypatch):
    made = CountedCluster(monkeypatch)
    for number in range(4):
        made.log.create(f"t{number}", file_delete_delay_ms=90_000)
    return made


@pytest.fixture
def watched(cluster, monkeypatch, capsys):
    made = Watched(cluster, monkeypatch)
    made.round()
    made.rounds(30)
    return made


def test_while_nothing_changes_a_topic_has_a_round_in_ten_minutes_and_a_minute_costs_few_requests(cluster, watched):
    cluster.counted()
    assert len(watched.rounds(60)) <= 4 * 6
    assert sum(cluster.counted().values()) / 60 <= 20


def test_a_topic_in_which_something_was_done_has_a_round_every_ten_seconds(watched, monkeypatch):
    monkeypatch.setattr(maintain, "has_done_something", lambda document: document["topic"] == "t2")
    watched.rounds(11)
    found = watched.rounds(5)
    assert (found.count("t2"), found.count("t1") <= 1) == (30, True)


def test_a_topic_that_cannot_be_maintained_is_tried_again_in_the_next_round(cluster, watched, monkeypatch):
    def fail(*_, **__):
        raise StoreUnavailable("", "", "the store did not answer")

    monkeypatch.setattr(maintain, "_maintain_topic", fail)
    failures = []
    cluster.now += 600
    for _ in range(3):
        watched.job.maintain(watched.log, failures)
        cluster.now += node_run.MAINTAIN_TOPIC.first
    assert [each for each in failures if "'t0'" in each] == ["topic 't0': the store did not answer"] * 3
