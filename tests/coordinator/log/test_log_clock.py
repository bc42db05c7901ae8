"""The clock of a log: what a process does whose clock and the stores' disagree."""

import msgspec
import pytest

from pyspark_log_coordinator.environment import CLOCKS_AGREE_MS
from pyspark_log_coordinator.journal.place import OneStore
from pyspark_log_coordinator.log.log_clock import COMPARE_EVERY_SECONDS, LogClock
from pyspark_log_coordinator.maintenance import topic_cleanup
from pyspark_log_coordinator.segments.orphans import RaiseOrphanFloor
from pyspark_log_storage.errors import StoreUnavailable
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.stored_topic import StoredTopic
from tests.support.memory_store import MemoryStore

DAY = 86_400_000


class Clocks:
    """A process, and the store whose clock it asks."""

    def __init__(self, own, store):
        self.own, self.store, self.seconds, self.asked = own, store, 0.0, 0
        environment = msgspec.structs.replace(
            fake_environment(), now_ms=lambda: self.own, monotonic=lambda: self.seconds, store_clock=self._read
        )
        self.clock = LogClock(environment, lambda: OneStore(MemoryStore(), environment))

    def _read(self, _):
        self.asked += 1
        if self.store == "away":
            raise StoreUnavailable("url", "", "it is away")
        return self.store

    def wait(self, seconds):
        self.seconds += seconds
        self.own += int(seconds * 1000)
        if isinstance(self.store, int):
            self.store += int(seconds * 1000)


@pytest.mark.parametrize(
    ("own", "store", "now", "maintains"),
    [
        (DAY, DAY, DAY, True),
        (DAY + CLOCKS_AGREE_MS, DAY, DAY + CLOCKS_AGREE_MS, True),
        (9 * DAY, DAY, DAY, False),
        (DAY, 9 * DAY, 9 * DAY, False),
        (DAY, None, DAY, True),
        (DAY, "away", DAY, False),
    ],
)
def test_a_store_that_disagrees_says_what_time_it_is_and_nothing_is_done_by_time(own, store, now, maintains):
    clocks = Clocks(own, store)
    assert (clocks.clock.now_ms(), clocks.clock.maintains()) == (now, maintains)
    assert bool(clocks.clock.doubt) != maintains


def test_the_store_is_asked_now_and_then_and_when_the_own_clock_has_jumped(caplog):
    clocks = Clocks(DAY, DAY)
    for _ in range(3):
        assert clocks.clock.now_ms() == DAY
    assert clocks.asked == 1
    clocks.own += 8 * DAY
    assert (clocks.clock.now_ms(), clocks.asked) == (DAY, 2)
    clocks.wait(COMPARE_EVERY_SECONDS)
    clocks.own = clocks.store
    assert (clocks.clock.now_ms(), clocks.asked, clocks.clock.maintains()) == (clocks.store, 3, True)
    ahead, again = (each.message for each in caplog.records)
    assert "691,200 s ahead of" in ahead
    assert again.endswith(" again")


def test_a_process_whose_clock_is_days_ahead_deletes_nothing_and_others_go_on():
    topic = StoredTopic(retention_ms=str(7 * DAY), file_delete_delay_ms="0", orphan_retention_ms=str(DAY))
    topic.clock.now_ms = now = 100 * DAY
    topic.append({0: [b"young"]}, times_ms=[now])
    topic.roll()
    topic.handle.submit(RaiseOrphanFloor(topic.handle.version))
    own = topic.log.clock

    def seen_by(clock_ms):
        environment = msgspec.structs.replace(topic.log.environment, now_ms=lambda: clock_ms, store_clock=lambda _: now)
        topic.log.clock = LogClock(environment, lambda: topic.log.journals.place)
        return topic_cleanup.clean_up_topic(topic.handle)

    assert (seen_by(now + 8 * DAY).expired, topic.read()) == ((), [b"young"])
    assert topic.handle.state.orphan_floor == 0
    topic.log.clock = own
    topic.clock.now_ms = now + 8 * DAY
    assert [each.rows for each in topic_cleanup.clean_up_topic(topic.handle).expired] == [1]
