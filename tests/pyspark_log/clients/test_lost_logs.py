"""Clients of a log that is gone, or that was deleted and begun again: nothing that they do is acknowledged."""

import pytest

from pyspark_log import Consumer, Producer
from pyspark_log_coordinator.log.log import Log
from pyspark_log_storage.errors import NodeAway, NodeMissing
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.memory_store import MemoryStore

GUARD = 60


class Bucket(MemoryStore):
    is_object_store = True


@pytest.fixture(params=[MemoryStore, Bucket], ids=["folder", "bucket"])
def store(request, monkeypatch):
    made = request.param("/cluster")
    for module in ("producer", "consumer", "consumer_group", "housekeeper"):
        monkeypatch.setattr(f"pyspark_log.clients.{module}.own_log", lambda *_: Log(made, fake_environment()))
    monkeypatch.setattr("pyspark_log.clients.housekeeper.own_stores_at", lambda *_: lambda _: made)
    begin(made)
    return made


def begin(store):
    log = Log(store, fake_environment())
    log.open(create=True)
    log.create_topic("t", 1)


def lose(store):
    for key in list(store.list("")):
        store.delete(key)


def replace(store):
    lose(store)
    begin(store)


@pytest.mark.parametrize(("fate", "error"), [(lose, NodeAway), (replace, NodeMissing)])
def test_a_batch_is_refused_and_leaves_no_entry(store, monkeypatch, fate, error):
    monkeypatch.setattr("pyspark_log_coordinator.log.log.MARKER_SECONDS", 0)  # no time passes here
    with Producer("/cluster", linger_ms=0, delivery_timeout_ms=1000) as producer:
        producer.send("t", b"1").result(GUARD)
        fate(store)
        before = {key for key in store.list("") if "/entries/" in key}
        for _ in range(2):
            with pytest.raises(error, match=r"nothing was written|was it wiped|is another node"):
                producer.send("t", b"2").result(GUARD)
        assert {key for key in store.list("") if "/entries/" in key} == before


@pytest.mark.parametrize(("fate", "error"), [(lose, NodeAway), (replace, NodeMissing)])
def test_offsets_are_not_committed(store, monkeypatch, fate, error):
    monkeypatch.setattr("pyspark_log_coordinator.log.log.MARKER_SECONDS", 0)
    with Consumer("/cluster", group_id="g", default_api_timeout_ms=1000) as consumer:
        consumer.assign([("t", 0)], "earliest")
        consumer.commit({("t", 0): 0})
        fate(store)
        with pytest.raises(error, match="nothing was written"):
            consumer.commit({("t", 0): 0})
