"""Which topics `maintain --watch` looks at in a bucket, and what it costs while nothing changes."""

import pytest

from pyspark_log.cli.nodes import maintain
from pyspark_log.cli.nodes.maintain import LOOK_SECONDS_MAX, ROUND_SECONDS_MAX, WatchPace
from pyspark_log_coordinator.topic.machine import AlterConfig
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
        return {
            each["topic"]: each for each in maintain._round(self.log, None, self.pace, dry_run=False, at_once=False)
        }

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


def test_four_topics_in_which_nothing_changes_cost_less_than_a_request_in_two_seconds(cluster, watcher):
    assert sum(cluster.in_a_minute(watcher.round, INTERVAL).values()) <= 20


def test_a_topic_with_a_new_entry_has_a_round_within_the_longest_pause(cluster, watcher):
    assert topics(watcher.rounds(5 * MINUTE)) == []
    cluster.log.append("t2", {0: [b"row"]})
    assert topics(watcher.rounds(int(LOOK_SECONDS_MAX) + INTERVAL)) == ["t2"]
    assert topics(watcher.rounds(5 * MINUTE)) == [], "then it is settled again"


def test_rows_that_expire_are_found_in_the_next_round_although_no_entry_tells_of_them(cluster, watcher):
    topic = cluster.log.create("short", retention_ms=40 * MINUTE * 1000)
    topic.submit(AlterConfig({"flush.messages": "1"}))
    for _ in range(9):
        cluster.log.append("short", {0: [b"row"]}, times_ms=[int(cluster.now * 1000)])
    written = cluster.now
    assert sum(each["short"]["segments"] for each in watcher.rounds(5 * MINUTE) if "short" in each) == 1
    while not (found := watcher.rounds(INTERVAL)[0].get("short")):
        pass
    assert [each["rows"] for each in found["expired"]] == [9]
    assert 40 * MINUTE <= cluster.now - written <= 40 * MINUTE + 2 * INTERVAL


def test_files_are_deleted_after_their_delay(cluster, watcher):
    for _ in range(9):
        cluster.log.append("t1", {0: [b"row"]})
    cluster.log.log.topic("t1").submit(AlterConfig({"flush.messages": "1"}))
    rolled = watcher.rounds(int(LOOK_SECONDS_MAX) + INTERVAL)
    assert sum(each["t1"]["segments"] for each in rolled if "t1" in each) == 1
    later = watcher.rounds(100)
    assert sum(each["t1"]["deleted"] for each in [*rolled, *later] if "t1" in each) >= 9


def test_a_settled_topic_has_a_round_every_hour(cluster, watcher):
    rounds = watcher.rounds(2 * int(ROUND_SECONDS_MAX))
    assert [sum(f"t{number}" in each for each in rounds) for number in range(4)] == [2, 2, 2, 2]


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
    assert topics([{topic: 1 for topic in sorted(watcher.log.topics()) if watcher.pace.topic_is_due(topic)}]) == [
        "t0",
        "t1",
        "t2",
        "t3",
    ]


def test_the_files_of_a_deleted_topic_are_deleted_within_minutes(cluster, watcher):
    cluster.log.log.delete_topic("t0")
    found = watcher.rounds(5 * MINUTE)
    assert [gone["topic"] for each in found if None in each for gone in each[None]["deleted_topics"]] == ["t0"]


def test_the_cluster_has_a_round_every_ten_minutes(watcher):
    watcher.rounds(20 * MINUTE)
    assert [None in each for each in watcher.rounds(60 * MINUTE)].count(True) == 6
