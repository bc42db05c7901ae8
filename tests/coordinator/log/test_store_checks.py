"""Whether the object stores with the journals still create an object only once is tried again, once a day."""

import msgspec
import pytest

from pyspark_log_coordinator.log.cluster_journals import CHECK_EVERY_SECONDS
from pyspark_log_coordinator.log.log import Log
from pyspark_log_storage.errors import StoreRefused, StoreUnfit
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.memory_store import MemoryStore


class Bucket(MemoryStore):
    is_object_store = True
    creates, forgets = 0, False

    def create(self, key, data):
        self.creates += 1
        if self.forgets:
            self.put(key, data)
        return super().create(key, data) or self.forgets


def test_a_bucket_that_begins_to_overwrite_is_found_within_a_day():
    bucket, seconds = Bucket(), [0.0]
    environment = msgspec.structs.replace(fake_environment(), monotonic=lambda: seconds[0])
    journals = Log(bucket, environment).journals
    journals.check_stores()
    bucket.forgets = True
    journals.check_stores()
    assert bucket.creates == 2, "tried before the first rows, and not again before the day is over"
    seconds[0] = CHECK_EVERY_SECONDS
    for _ in range(2):
        with pytest.raises(StoreUnfit, match="overwrites"):
            journals.check_stores()


def test_who_writes_tries_the_bucket_first():
    bucket = Bucket()
    log = Log(bucket, fake_environment())
    log.open(create=True)
    log.create_topic("t", 1)
    bucket.forgets = True
    with pytest.raises(StoreUnfit, match="overwrites"):
        log.topic("t").write_targets("all")


def test_a_store_that_may_not_be_tried_is_not_unfit(monkeypatch):
    def refuse(key, data):
        raise StoreRefused("bucket", key, "no right")

    bucket = Bucket()
    monkeypatch.setattr(bucket, "create", refuse)
    Log(bucket, fake_environment()).journals.check_stores()
