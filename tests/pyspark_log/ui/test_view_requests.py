"""What an open page costs a bucket."""

from __future__ import annotations

import pytest

from pyspark_log.opening import own_log
from pyspark_log.ui.view import Watch
from tests.support.counted_bucket import CountedCluster


@pytest.fixture
def cluster(monkeypatch):
    cluster = CountedCluster(monkeypatch)
    for name in ("a", "b", "c", "d"):
        cluster.log.create(name, 3)
        cluster.log.log.group(f"group of {name}", create=True)
    return cluster


@pytest.mark.parametrize("wanted", [(), ("a",), ("a", "group of a")])
def test_an_open_page_costs_a_bucket_one_request_a_second(cluster, wanted):
    watch = Watch(own_log(cluster.path), cluster.path)
    watch.look()
    found = cluster.in_a_minute(lambda: watch.look(wanted), every=1.0)
    assert sum(found.values()) <= 60, found


def test_what_somebody_has_open_is_seen_first(cluster):
    watch = Watch(own_log(cluster.path), cluster.path)
    watch.look()
    cluster.now += 1
    cluster.log.log.topic("b").alter_config({"retention.ms": "1000"})
    ages = []
    for _ in range(10):
        cluster.now += 1
        ages.append(watch.look(["b"]).topics["b"].topic.config.retention_ms)
    assert ages.index(1000) <= 2, ages


def test_each_topic_and_group_is_seen_in_turn(cluster):
    watch = Watch(own_log(cluster.path), cluster.path)
    first = watch.look()
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
