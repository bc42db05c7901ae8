"""Which topics `maintain --watch` looks at in a bucket, and what it costs while nothing changes."""

import pytest

from pyspark_log.cli.nodes import maintain
from pyspark_log.cli.nodes.maintain import LOOK_SECONDS_MAX, ROUND_SECONDS_MAX, WatchPace
from pyspark_log_storage.errors import StoreUnavailable
from tests.support.counted_bucket import CountedCluster

INTERVAL = 10
MINUTE = 60


class Watcher:
    """`maintain --watch` over four topics, round by round."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.log = maintain.open_log(cluster.path)
        self.pace = WatchPace(self.log, INTERVAL)

    def round(self):
        """The documents of a round, by topic; that of the cluster is None."""
        found = maintain._round(self.log, None, self.pace, dry_run=False, at_once=False)
        return {each["topic"]: each for each in found}

    def rounds(self, seconds):
        """The documents of all rounds in this time."""
        found = []
        for _ in range(seconds // INTERVAL):
            self.cluster.now += INTERVAL
            found.append(self.round())
        return found


@pytest.fixture
def cluster(monkeypatch):
    made = CountedCluster(monkeypatch)
    for number in range(4):
        made.log.create(f"t{number}", file_delete_delay_ms=90_000)
    return made


@pytest.fixture
def watcher(cluster):
    made = Watcher(cluster)
    made.round()
    made.rounds(10 * MINUTE)
    return made


def topics(found):
    return sorted({topic for each in found for topic in each if topic is not None})


def of(found, topic, field):
    """Return the sum of a field of a topic over rounds."""
    return sum(each[topic][field] for each in found if topic in each)


def test_while_nothing_changes_a_minute_costs_few_requests_and_each_topic_has_a_round_an_hour(cluster, watcher):
    assert sum(cluster.in_a_minute(watcher.round, INTERVAL).values()) <= 20
    rounds = watcher.rounds(2 * int(ROUND_SECONDS_MAX))
    assert [sum(f"t{number}" in each for each in rounds) for number in range(4)] == [2, 2, 2, 2]
    assert [None in each for each in watcher.rounds(60 * MINUTE)].count(True) == 6, "the cluster: every ten minutes"


def test_a_topic_with_a_new_entry_has_a_round_within_the_longest_pause(cluster, watcher):
    assert topics(watcher.rounds(5 * MINUTE)) == []
    cluster.log.append("t2", {0: [b"row"]})
    assert topics(watcher.rounds(int(LOOK_SECONDS_MAX) + INTERVAL)) == ["t2"]
    assert topics(watcher.rounds(5 * MINUTE)) == [], "then it is settled again"


def test_a_topic_whose_round_failed_is_tried_again_in_the_next_one(cluster, watcher, monkeypatch):
    def fail(*_, **__):
        raise StoreUnavailable("", "", "the store did not answer")

    with monkeypatch.context() as broken:
        broken.setattr(maintain, "_topic", fail)
        cluster.log.append("t3", {0: [b"row"]})
        found = watcher.rounds(3 * int(LOOK_SECONDS_MAX))
    failed = [each for each in found if "t3" in each]
    assert len(failed) > 10
    assert all("did not answer" in each["t3"]["failures"][0] for each in failed)
    assert "t3" in watcher.rounds(INTERVAL)[0]


def test_nodes_that_come_or_go_cause_a_round_of_every_topic(watcher):
    watcher.log.missing_nodes = {"2": StoreUnavailable("", "", "it is away")}
    due = [topic for topic in sorted(watcher.log.topics()) if watcher.pace.topic_is_due(topic)]
    assert due == ["t0", "t1", "t2", "t3"]
