"""A task whose nodes are unreachable retries, and stages each of its rows once."""

import functools
from collections.abc import Callable

import msgspec
import pyarrow as pa
import pytest

from pyspark_log.writing.destination import destination_of
from pyspark_log.writing.rows import Rows
from pyspark_log.writing.staging import RetryingStaging, Staging
from pyspark_log_coordinator.commit.commit import commit_staged, detect_failures
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_storage import layout
from pyspark_log_storage.errors import NodeAway, StoreRefused, StoreUnavailable, StoreUnwritable
from pyspark_log_storage.files.append_file import read_chunk
from pyspark_log_storage.objects import node
from tests.support.coordinator.breakable_store import BreakableStore
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.several_nodes import Stores
from tests.support.plain_log import record

AWAY_S = 8


class TwoNodes:
    """A topic on nodes 1 and 2, with the journals on node 0, and a clock that only a wait advances."""

    def __init__(self, **config):
        clock = fake_environment()
        self.events: list[tuple[float, Callable[[], object]]] = []
        """What happens while somebody waits, and when."""

        def sleep(seconds):
            clock.sleep(seconds)
            for event in [each for each in self.events if each[0] <= clock.monotonic()]:
                self.events.remove(event)
                event[1]()

        environment = msgspec.structs.replace(clock, sleep=sleep)
        self.stores = Stores(BreakableStore)
        self.log = self.stores.with_nodes(3, environment)
        replicas = config.pop("replicas", [("1", "2")])
        self.handle = self.log.create_topic("t", len(replicas), TopicConfig(**config), replicas=replicas)
        self.begun = 0

    def disk(self, name):
        return self.stores.at[f"/disk/{name}"]

    def take_away(self, *nodes, error=StoreUnavailable):
        for name in nodes:
            self.disk(name).broken = error

    def bring_back(self, *nodes):
        self.take_away(*nodes, error=None)

    def at(self, seconds, act, *arguments):
        self.events.append((seconds, functools.partial(act, *arguments)))

    def task(self, acks="all", policy=None, **options):
        policy = policy or RetryPolicy()

        def begin(*, again):
            self.begun += 1
            if again:
                detect_failures(self.handle, policy)
            destination = destination_of(self.handle, None, 10**6, acks)
            return Staging(
                self.log.store_at, lambda _: destination, "t", environment=self.log.environment, durable=True, sticky=0
            )

        return RetryingStaging(begin, self.log.environment, policy, **options)

    def values(self):
        """The rows of partition 0, as the log has them."""
        state, found = self.handle.refresh(), []
        for chunk in state.partitions[0].chunks:
            file = state.file(chunk.file)
            store = self.log.node_store(file.holders[0].node)
            key = self.handle.append_file(file.name)
            found += read_chunk(store, key, chunk.place(0), self.handle.schemas, "t").column("value").to_pylist()
        return found


def rows(*values):
    return Rows(record(values), None, pa.array([0] * len(values), pa.int32()))


def commit(topic, staged, acks="all"):
    commit_staged(topic.log, [staged], None, acks, RetryPolicy(), None)


@pytest.mark.parametrize("error", [StoreUnavailable, NodeAway])
@pytest.mark.parametrize("acks", ["all", "1"])
def test_a_task_waits_for_nodes_that_are_unreachable_for_eight_seconds(acks, error):
    topic = TwoNodes()
    topic.take_away("1", "2", error=error)
    topic.at(AWAY_S, topic.bring_back, "1", "2")
    task = topic.task(acks)
    for value in (b"a", b"b", b"c"):
        task.add(rows(value))
    commit(topic, task.finish(), acks)
    assert topic.values() == [b"a", b"b", b"c"]
    assert AWAY_S <= topic.log.environment.monotonic() < AWAY_S + 2


def test_rows_written_before_the_nodes_failed_are_written_again_and_none_appears_twice(monkeypatch):
    monkeypatch.setattr("pyspark_log.writing.staging.BLOCK_ROWS_MAX", 2)
    topic = TwoNodes()
    task = topic.task()
    for value in (b"a", b"b", b"c"):
        task.add(rows(value))  # the block of a and b is written
    topic.take_away("1", "2")
    topic.at(AWAY_S, topic.bring_back, "1", "2")
    for value in (b"d", b"e"):
        task.add(rows(value))
    commit(topic, task.finish())
    assert topic.values() == [b"a", b"b", b"c", b"d", b"e"]


def test_a_task_waits_for_nodes_that_fail_before_the_file_has_its_name():
    topic = TwoNodes()
    task = topic.task()
    task.add(rows(b"a"))
    topic.take_away("1", "2")
    topic.at(AWAY_S, topic.bring_back, "1", "2")
    commit(topic, task.finish())
    assert topic.values() == [b"a"]


def test_one_reachable_node_of_the_isr_is_enough():
    topic = TwoNodes()
    topic.take_away("1", "2")
    topic.at(AWAY_S, topic.bring_back, "2")
    task = topic.task()
    task.add(rows(b"a"))
    commit(topic, task.finish())
    assert (topic.values(), topic.handle.journal.state.partitions[0].isr) == ([b"a"], ("2",))


def test_a_node_that_has_the_file_but_failed_to_say_so_does_not_hold_it(monkeypatch):
    topic = TwoNodes()
    disk = topic.disk("1")
    opened = disk.open_write

    def fails_at_the_end(key, **options):
        writer = opened(key, **options)
        close = writer.close

        def closed():
            close()
            raise StoreUnavailable(disk.url, key, "no answer")

        writer.close = closed
        return writer

    monkeypatch.setattr(disk, "open_write", fails_at_the_end)
    task = topic.task()
    task.add(rows(b"a"))
    [staged] = task.finish()
    assert disk.exists(topic.handle.append_file(staged.file.name))
    assert ([each.node for each in staged.file.holders], staged.failed) == (["2"], ("1",))


def test_a_node_that_is_another_one_by_the_end_does_not_hold_the_file():
    topic = TwoNodes()
    task = topic.task()
    task.add(rows(b"a"))
    marker = node.read_marker(topic.disk("1"))
    topic.disk("1").put(layout.MARKER, node.encode(msgspec.structs.replace(marker, incarnation="another")))
    [staged] = task.finish()
    assert ([each.node for each in staged.file.holders], staged.failed) == (["2"], ("1",))


def test_a_task_that_waits_elects_an_out_of_sync_leader_if_the_topic_allows_it():
    topic = TwoNodes(replicas=[("1", "2")], unclean_leader_election_enable=True)
    topic.take_away("2")
    topic.log.probe_nodes()
    first = topic.task()
    first.add(rows(b"on node 1 alone"))
    commit(topic, first.finish())
    assert topic.handle.journal.state.partitions[0].isr == ("1",)
    topic.bring_back("2")
    topic.take_away("1")
    topic.log.probe_nodes()
    task = topic.task()
    task.add(rows(b"a"))
    commit(topic, task.finish())
    assert topic.handle.journal.state.partitions[0].leader == "2"
    assert topic.values() == [b"a"]


def test_a_task_fails_with_the_retriable_error_of_the_unreachable_node_if_another_is_full():
    topic = TwoNodes()
    failures = []
    for full, away in (("1", "2"), ("2", "1")):
        topic.disk(full).broken_writes, topic.disk(full).broken = StoreUnwritable, None
        topic.take_away(away)
        topic.log.missing_nodes = {}
        task = topic.task(policy=RetryPolicy(retries=0))
        task.add(rows(b"a"))
        with pytest.raises(StoreUnavailable) as caught:
            task.finish()
        failures.append(caught.value.url)
    assert failures == ["/disk/2", "/disk/1"]


def test_retries_end_with_delivery_timeout_ms():
    topic = TwoNodes()
    topic.take_away("1", "2")
    task = topic.task(policy=RetryPolicy(delivery_timeout_ms=5_000))
    task.add(rows(b"a"))
    with pytest.raises(StoreUnavailable, match="/disk/1 was taken away"):
        task.finish()
    assert topic.log.environment.monotonic() == 5


def test_missing_rights_are_not_retried():
    topic = TwoNodes()
    task = topic.task()
    task.add(rows(b"a"))
    topic.disk("1").broken_writes = StoreRefused
    with pytest.raises(StoreRefused):
        task.finish()
    assert (topic.log.environment.monotonic(), topic.begun) == (0, 1)


def test_without_retries_the_first_error_ends_the_task():
    topic = TwoNodes()
    topic.take_away("1", "2")
    task = topic.task(policy=RetryPolicy(retries=0))
    task.add(rows(b"a"))
    with pytest.raises(StoreUnavailable):
        task.finish()
    assert topic.begun == 1


def test_a_task_with_more_rows_than_it_keeps_fails():
    topic = TwoNodes()
    task = topic.task(kept_bytes_max=1000)
    task.add(rows(b"x" * 2000))
    topic.take_away("1", "2")
    with pytest.raises(StoreUnavailable):
        task.finish()
    assert topic.begun == 1


def test_a_task_without_rows_waits_for_no_node():
    topic = TwoNodes()
    topic.take_away("1", "2")
    assert topic.task().finish() == []
    assert topic.begun == 0
