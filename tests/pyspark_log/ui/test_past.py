"""The past of a cluster: what it costs a bucket, and that it continues."""

from __future__ import annotations

import pytest

from pyspark_log.opening import own_log
from pyspark_log.ui import past
from pyspark_log.ui.pages import time_of
from pyspark_log.ui.past import Past, Span, drawn, span_of
from pyspark_log.ui.view import Watch
from pyspark_log_coordinator.audit.timeline import Lane, Moment, Scope
from pyspark_log_storage.errors import InvalidInput, LogError, UnknownGroup, UnknownTopic
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
        self.watch = Watch(own_log(cluster.path), cluster.path)
        self.past = Past(own_log(cluster.path))

    def __call__(self, topic="", group=""):
        return self.past.journals(self.watch.look({topic, group} - {""}), topic, group)


@pytest.fixture
def timeline(cluster):
    timeline = Timeline(cluster)
    timeline()
    return timeline


@pytest.mark.parametrize("topic", ["", "a"])
def test_an_open_timeline_costs_a_bucket_one_request_a_second_with_its_looks(cluster, timeline, topic):
    cluster.now += 600
    counts = cluster.in_a_minute(lambda: timeline(topic), every=0.5)
    assert sum(counts.values()) <= 61, counts
    assert counts, "it is not looked at again"


@pytest.mark.parametrize("topic", ["", "a"])
def test_also_while_others_write(cluster, timeline, topic):
    cluster.now += 600
    seconds = 600
    cluster.counted()
    for second in range(seconds):
        if second % 5 == 0:
            with cluster.bucket.uncounted():
                cluster.log.append("a", {0: [b"x"]})
        found = timeline(topic)
        cluster.now += 1
    counts = cluster.counted()
    assert sum(counts.values()) <= seconds + past.REQUESTS_AT_ONCE, counts
    with cluster.bucket.uncounted():
        assert found[Scope.TOPIC, "a"].version >= cluster.log.log.topic("a").version - 10


def test_an_open_timeline_of_a_bucket_sees_what_is_new(cluster, timeline):
    before = timeline("a")[Scope.TOPIC, "a"].version
    cluster.log.append("a", {0: [b"x"]})
    for _ in range(120):
        cluster.now += 1
        found = timeline("a")[Scope.TOPIC, "a"]
    assert found.version == before + 1
    assert found.moments[-1].entry == before + 1


def test_a_new_entry_costs_no_replay_from_the_snapshot_before_it(cluster, timeline):
    for _ in range(100):
        cluster.log.append("a", {0: [b"x"]})
    view = Watch(own_log(cluster.path), cluster.path).look()
    cluster.now += 600
    timeline.past.journals(view, "a")
    cluster.log.append("a", {0: [b"x"]})
    view = Watch(own_log(cluster.path), cluster.path).look()
    cluster.now += 600
    cluster.counted()
    found = timeline.past.journals(view, "a")
    assert found[Scope.TOPIC, "a"].version == view.topics["a"].version
    assert sum(cluster.counted().values()) <= 4


def test_a_first_read_of_many_journals_is_bounded_and_continued(cluster, monkeypatch):
    monkeypatch.setattr(past, "REQUESTS_AT_FIRST", 30)
    timeline = Timeline(cluster)
    view = timeline.watch.look()
    cluster.counted()
    first = timeline.past.journals(view)
    assert 30 <= sum(cluster.counted().values()) <= 60
    assert len(first) < 9
    assert (Scope.TOPIC, "d") in timeline.past.journals(view, "d"), "what is asked for is read at once"
    found = [len(first)]
    for _ in range(600):
        cluster.now += 1
        found.append(len(timeline()))
    assert found == sorted(found)
    assert found[-1] == 9


def test_what_a_first_read_leaves_follows_within_the_budget(cluster, monkeypatch):
    monkeypatch.setattr(past, "REQUESTS_AT_FIRST", 10)
    for number in range(60):
        cluster.log.create(f"topic-{number}", 1)
    timeline = Timeline(cluster)
    assert len(timeline()) < 10
    counts = cluster.in_a_minute(timeline, every=0.5)
    assert sum(counts.values()) <= 60 + past.REQUESTS_AT_ONCE, counts


def test_a_long_journal_is_read_from_its_newest_entries_on(cluster, monkeypatch):
    monkeypatch.setattr(past, "ENTRIES_READ", 10)
    for _ in range(40):
        cluster.log.append("a", {0: [b"x"]})
    journal = Timeline(cluster)("a")[Scope.TOPIC, "a"]
    assert journal.begin == journal.version - 9
    assert {each.entry for each in journal.moments} == set(range(journal.begin, journal.version + 1))


def test_a_journal_of_a_bucket_that_could_not_be_read_is_read_as_soon_as_it_can(cluster, timeline, monkeypatch):
    cluster.log.append("a", {0: [b"x"]})
    cluster.now += 600
    with monkeypatch.context() as away:
        away.setattr(Past, "_journal", failing)
        for _ in range(20):
            cluster.now += 1
            found = timeline("a")
    assert found[Scope.TOPIC, "a"].problem == "the bucket is away"
    for _ in range(20):
        cluster.now += 1
        found = timeline("a")
    assert not found[Scope.TOPIC, "a"].problem
    assert any(each.rows for each in found[Scope.TOPIC, "a"].moments)


def failing(*_):
    raise LogError("the bucket is away")


def test_of_a_journal_the_newest_moments_are_kept(cluster, timeline, monkeypatch):
    monkeypatch.setattr(past, "MOMENTS_KEPT", 3)
    for _ in range(5):
        cluster.log.append("a", {0: [b"x"]})
    journal = Timeline(cluster)("a")[Scope.TOPIC, "a"]
    assert len(journal.moments) == 3
    assert journal.moments[-1].entry == journal.version


def test_a_bad_moment_is_a_mark_of_its_own_kind_however_many_others_are_near():
    good = [Moment(500, Scope.TOPIC, "t", 1, Lane.NODES, "good")] * 10
    bad = Moment(500, Scope.TOPIC, "t", 2, Lane.NODES, "bad", is_bad=True)
    (row,) = drawn([*good, bad, *good], Span(0, 1000), [Lane.NODES], str, 10).lanes
    assert [(each.total, each.is_bad) for each in row.marks] == [(20, False), (1, True)]


def test_what_does_not_exist_is_refused_each_time_and_asked_for_never(cluster, timeline):
    view = timeline.watch.view
    cluster.counted()
    for _ in range(2):
        with pytest.raises(UnknownTopic):
            timeline.past.journals(view, "none")
        with pytest.raises(UnknownGroup):
            timeline.past.journals(view, "", "none")
    assert cluster.counted() == {}


@pytest.mark.parametrize("is_object_store", [True, False])
def test_a_topic_that_is_created_again_has_a_past_of_its_own(monkeypatch, is_object_store):
    cluster = CountedCluster(monkeypatch, is_object_store=is_object_store)
    cluster.log.create("a", 1)
    cluster.log.append("a", {0: [b"x"]})
    timeline = Timeline(cluster)
    assert any(each.rows for each in timeline()[Scope.TOPIC, "a"].moments)
    cluster.log.delete("a")
    cluster.log.create("a", 1)
    for _ in range(120):
        cluster.now += 1
        found = timeline()
    assert not any(each.rows for each in found[Scope.TOPIC, "a"].moments)


@pytest.mark.parametrize("link", ["earlier", "wider", "later"])
def test_each_link_leads_to_a_time_that_an_address_can_have(link):
    span = Span(1_700_000_000_000, 1_700_000_001_000)
    for _ in range(60):
        found = getattr(drawn([], span, [], str, 10), link)
        asked = span_of({"from": str(found.since), "to": str(found.until)}, [], 10)
        assert asked.since <= found.since
        assert asked.since < asked.until
        assert time_of(asked.since)
        span = asked


@pytest.mark.parametrize("text", ["-", "--1", "1" * 16, "1e3", "-1000x"])
def test_what_is_no_time_is_refused_in_words(text):
    with pytest.raises(InvalidInput, match="is not a time; write it as"):
        span_of({"from": text}, [], 10)


def test_a_time_before_1970_shows_what_happened_since():
    moment = Moment(5, Scope.CLUSTER, "", 1, Lane.NODES, "words")
    span = span_of({"from": "-1000", "to": "1970-01-01T00:00:01Z"}, [moment], 10)
    assert span == Span(-1000, 1000)
    assert drawn([moment], span, [Lane.NODES], time_of, 10).listed == [moment]
    assert time_of(span.since) == "1969-12-31 23:59:59.000Z"


def test_a_span_that_ends_before_it_begins_is_a_moment():
    span = span_of({"from": "5", "to": "1"}, [], 10)
    assert span.since < span.until


def test_what_writers_with_fast_clocks_did_is_shown_whichever_journal_comes_last():
    early, late = (Moment(ms, Scope.TOPIC, "t", 1, Lane.NODES, "words") for ms in (5, 5000))
    for moments in ([early, late], [late, early]):
        span = span_of({}, moments, 10)
        assert span == Span(5, 5000)
        assert len(drawn(moments, span, [Lane.NODES], time_of, 10).listed) == 2
