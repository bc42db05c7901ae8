"""What an open page costs a bucket, and the past of a cluster that it shows."""

from __future__ import annotations

import pytest

from pyspark_log.browse import past
from pyspark_log.browse.past import Past
from pyspark_log.browse.view import Watch
from pyspark_log.opening import own_log
from pyspark_log.ui.content import span_of
from pyspark_log_coordinator.audit.timeline import Scope
from pyspark_log_storage.errors import InvalidInput, LogError
from tests.support.counted_bucket import CountedCluster


@pytest.fixture
def cluster(monkeypatch):
    cluster = CountedCluster(monkeypatch)
    for name in ("a", "b", "c", "d"):
        cluster.log.create(name, 3)
        cluster.log.log.group(f"group of {name}", create=True)
    return cluster


class Timeline:
    """An open timeline: a look, and then the past, as the server does once a second."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.watch = Watch(own_log(cluster.path), cluster.path)
        self.past = Past(own_log(cluster.path), self.watch.budget)

    def __call__(self, topic="", group=""):
        self.past.read(self.watch.look({topic, group} - {""}), topic, group)
        return self.past.known

    def after(self, seconds, topic=""):
        """Return what is found after so many seconds, in each of which somebody looks."""
        for _ in range(seconds):
            self.cluster.now += 1
            found = self(topic)
        return found


@pytest.fixture
def timeline(cluster):
    timeline = Timeline(cluster)
    timeline.after(300)
    assert len(timeline.past.known) == 9
    return timeline


# A view


def test_what_somebody_has_open_is_seen_first_and_everything_else_in_turn(cluster):
    watch = Watch(own_log(cluster.path), cluster.path)
    first = watch.look()
    cluster.now += 1
    cluster.log.log.topic("b").alter_config({"retention.ms": "1000"})
    ages = []
    for _ in range(3):
        cluster.now += 1
        ages.append(watch.look(["b"]).topics["b"].topic.config.retention_ms)
    assert 1000 in ages, ages
    for _ in range(20):
        cluster.now += 1
        watch.look()
    for kind in ("topics", "groups"):
        before, after = getattr(first, kind), getattr(watch.view, kind)
        assert all(after[name].at_ms > before[name].at_ms for name in before)
    cluster.log.create("new", 1)
    for _ in range(61):
        cluster.now += 1
        watch.look()
    assert "new" in watch.view.topics


# A timeline


@pytest.mark.parametrize("topic", ["", "a"])
def test_an_open_timeline_costs_a_bucket_one_request_a_second_also_while_others_write(cluster, timeline, topic):
    cluster.now += 600
    counts = cluster.in_a_minute(lambda: timeline(topic), every=0.5)
    assert 0 < sum(counts.values()) <= 61, counts
    cluster.now += 600
    cluster.counted()
    for _ in range(60):
        with cluster.bucket.uncounted():
            cluster.log.append("a", {0: [b"x"]})
        found = timeline.after(5, topic)
    counts = cluster.counted()
    assert sum(counts.values()) <= 300 + past.REQUESTS_AT_ONCE, counts
    with cluster.bucket.uncounted():
        assert found[Scope.TOPIC, "a"].version >= cluster.log.log.topic("a").version - 10


def test_an_open_overview_costs_a_bucket_one_request_a_second_from_the_first_look_on(cluster):
    watch = Watch(own_log(cluster.path), cluster.path)
    past_ = Past(own_log(cluster.path), watch.budget)
    watch.look()
    cluster.now += 60
    counts = cluster.in_a_minute(lambda: past_.read(watch.look(), waits=False), every=0.5)
    assert 0 < sum(counts.values()) <= 60 + past.REQUESTS_AT_ONCE + 5, counts


def test_a_page_says_when_it_waits_because_a_bucket_was_asked_too_often(cluster):
    watch = Watch(own_log(cluster.path), cluster.path)
    watch.look()
    assert watch.view.status == "live"
    for _ in range(30):
        cluster.bucket.exists("x")
    cluster.now += 1
    assert watch.look().status.startswith("paused")
    cluster.now += 40
    assert watch.look().status == "live"


@pytest.fixture
def long(cluster, monkeypatch):
    """Topic a has a hundred entries, and a snapshot after every eighth of them."""
    monkeypatch.setattr("pyspark_log_coordinator.journal.journal.SNAPSHOT_EVERY", 8)
    monkeypatch.setattr(past, "ENTRIES_AT_ONCE", 8)
    for _ in range(100):
        cluster.log.append("a", {0: [b"x"]})
    return cluster


def test_a_past_is_read_from_its_newest_entries_on_within_the_budget(long):
    timeline = Timeline(long)
    view = timeline.watch.look()
    long.counted()
    timeline.past.read(view, "a")
    assert sum(long.counted().values()) <= 50
    first = timeline.past.known[Scope.TOPIC, "a"]
    assert (first.is_whole, first.version - first.begin < 16) == (False, True)
    seen = sum(sum(long.in_a_minute(lambda: timeline("a"), every=0.5).values()) for _ in range(10))
    assert seen <= 600 + past.REQUESTS_AT_ONCE, seen
    assert len(timeline.past.known) == 9
    assert all(each.is_whole for each in timeline.past.known.values())
    at_once = Past(own_log(long.path))
    at_once.read(timeline.watch.view)
    assert timeline.past.known == at_once.known


def test_looks_go_on_while_older_entries_are_read_and_paid_for(long):
    timeline = Timeline(long)
    timeline("a")
    ages = []
    for _ in range(100):
        long.now += 1
        view = timeline.watch.look({"a"})
        timeline.past.read(view, "a")
        ages.append(view.now_ms - view.at_ms)
    assert max(ages) <= 10_000, ages


def test_what_is_asked_for_is_read_at_once_unless_too_much_is_owed(cluster, monkeypatch):
    timeline = Timeline(cluster)
    view = timeline.watch.look()
    timeline.past.read(view)
    timeline.past.read(view, "d")
    assert (Scope.TOPIC, "d") in timeline.past.known
    monkeypatch.setattr(past, "REQUESTS_AHEAD", 0)
    timeline.past.read(view, "c")
    assert (Scope.TOPIC, "c") not in timeline.past.known
    assert len(timeline.after(300)) == 9


def test_of_a_long_journal_the_newest_entries_are_read_and_the_newest_moments_kept(cluster, monkeypatch):
    monkeypatch.setattr(past, "ENTRIES_READ", 10)
    for _ in range(40):
        cluster.log.append("a", {0: [b"x"]})
    journal = Timeline(cluster)("a")[Scope.TOPIC, "a"]
    assert journal.begin == journal.version - 9
    assert {each.entry for each in journal.moments} == set(range(journal.begin, journal.version + 1))
    monkeypatch.setattr(past, "MOMENTS_KEPT", 3)
    journal = Timeline(cluster)("a")[Scope.TOPIC, "a"]
    assert (len(journal.moments), journal.moments[-1].entry) == (3, journal.version)


def test_a_journal_of_a_bucket_that_could_not_be_read_is_read_as_soon_as_it_can(cluster, timeline, monkeypatch):
    def failing(*_):
        raise LogError("the bucket is away")

    cluster.log.append("a", {0: [b"x"]})
    cluster.now += 600
    with monkeypatch.context() as away:
        away.setattr(Past, "_newer", failing)
        assert timeline.after(20, "a")[Scope.TOPIC, "a"].problem == "the bucket is away"
    found = timeline.after(20, "a")[Scope.TOPIC, "a"]
    assert not found.problem
    assert any(each.rows for each in found.moments)


# A span of time


def test_a_span_has_what_happened_in_it_before_1970_and_by_fast_clocks_too():
    assert span_of({"from": "-1000", "to": "1970-01-01T00:00:01Z"}, [5], 10) == (-1000, 1000)
    for times in ([5, 5000], [5000, 5]):
        assert span_of({}, times, 10) == (5, 5000)


def test_a_span_that_ends_before_it_begins_is_a_moment_and_what_is_no_time_is_refused():
    since, until = span_of({"from": "5", "to": "1"}, [], 10)
    assert since < until
    for text in ("-", "--1", "1" * 16, "1e3", "-1000x"):
        with pytest.raises(InvalidInput, match="is not a time; write it as"):
            span_of({"from": text}, [], 10)
