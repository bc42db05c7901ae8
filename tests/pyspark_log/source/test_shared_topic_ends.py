"""Where a query that shares its topics begins and ends: AvailableNow, no partitions, added ones, a topic made again."""

import pytest

from pyspark_log import opening
from pyspark_log.reading import shared_topics, source_offset, stream_planner
from pyspark_log.reading.query_member import begun_with
from pyspark_log_coordinator.membership.group_member import NEWS_SECONDS
from pyspark_log_coordinator.membership.member_thread import MemberThread
from pyspark_log_coordinator.replication.reassignment import AddPartitions
from pyspark_log_storage.errors import DataLoss
from tests.support.pyspark_log.source.shared_queries import Clock, Queries, Query


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def queries(root, monkeypatch, clock):
    monkeypatch.setattr(opening, "real_environment", clock.environment)
    monkeypatch.setattr(MemberThread, "start", lambda _: None)
    monkeypatch.setattr(stream_planner, "IDLE_WAIT_SECONDS", 0.0)
    return Queries(str(root))


class TestAvailableNow:
    def begin(self, queries, name):
        query = queries.query(name)
        query.reader.prepareForTriggerAvailableNow()
        return query

    def test_waits_for_the_querys_part_and_ends_when_that_is_read(self, queries, clock):
        queries.append(10)
        one = self.begin(queries, "one")
        assert one.batch()
        assert queries.is_once
        began = clock.environment().monotonic()
        assert not one.batch()
        assert clock.environment().monotonic() - began < stream_planner.ASSIGNMENT_WAIT_SECONDS / 2
        assert queries.committed(0) == 10

    def test_reads_only_the_part_of_the_query(self, queries):
        one, two = queries.sharing("one", "two")
        queries.append(10)
        two.start()
        two.reader.prepareForTriggerAvailableNow()
        queries.append(10)
        while two.batch():
            pass
        assert max(map(len, two.sink.values())) == 30
        assert one.planned.isdisjoint(two.planned)
        two.start()
        queries.settle()
        assert queries.is_once

    @pytest.mark.no_faults("makes so many calls that every run meets one")
    def test_ends_without_rows_if_a_query_that_is_away_has_all_partitions(self, queries, clock):
        (one,) = queries.sharing("one")
        one.kill()
        queries.append(10)
        two = self.begin(queries, "two")
        began = clock.environment().monotonic()
        assert two.batch()
        assert not two.batch()
        assert clock.environment().monotonic() - began < stream_planner.ASSIGNMENT_WAIT_SECONDS / 2
        assert two.planned == set()


def test_the_first_batch_of_a_query_without_partitions_has_an_offset_of_its_member(queries):
    one = queries.query("one")
    assert one.plan()
    found = source_offset.parse(one.offsets[0])
    assert not found.initial
    assert found.member.instance_id == "one"
    assert found.ends() == {}


@pytest.mark.no_faults("makes so many calls that every run meets one")
def test_added_partitions_are_read_from_their_start_also_if_the_query_started_at_latest(queries):
    queries.append(10)
    queries.written.clear()
    one = queries.query("one", startingOffsets="latest")
    one.batch()
    queries.settle()
    handle = queries.log.log.topic("t")
    incarnations = handle.journal.state.incarnations
    handle.submit(AddPartitions((tuple(incarnations),) * 2, incarnations))
    queries.append(5, range(6, 8))
    queries.settle()
    assert one.planned == set(range(8))
    assert queries.is_once


@pytest.mark.no_faults("makes so many calls that every run meets one")
def test_how_the_group_began_with_a_topic_is_found_out_once_for_all_its_partitions(queries, monkeypatch):
    """It is in the texts beside the committed offsets of all of them."""
    calls = []
    monkeypatch.setattr(shared_topics, "begun_with", lambda *given: calls.append(given) or begun_with(*given))
    one = queries.query("one")
    while not one.planned:
        calls.clear()
        queries.act()
        one.batch()
    assert one.planned == set(range(6))
    assert len(calls) == 1


def by_pattern(queries, name, **options):
    """A query that reads topic u as soon as there is one."""
    query = Query(queries.log.path, name, subscribePattern="[tu]", **options)
    del query.options["subscribe"]
    queries.all.append(query)
    return query.start()


@pytest.mark.no_faults("makes so many calls that every run meets one")
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("start", ["latest", "latest-by-key", '{"t":{"0":0,"1":0,"2":0,"3":0,"4":0,"5":0}}'])
def test_a_topic_that_a_pattern_finds_later_is_read_from_its_start(queries, clock, start, restarts):
    if start == "latest-by-key":
        queries.log.log.topic("t").alter_config({"cleanup.policy": "compact"})
    one, two = (by_pattern(queries, name, startingOffsets=start) for name in ("one", "two"))
    queries.settle()
    if restarts:
        one.kill()
        two.kill()
    queries.log.create("u", 2)
    queries.log.append("u", {0: [b"10"], 1: [b"11"]})
    if restarts:
        one.start()
        two.start()
    for _ in range(20):
        clock.environment().sleep(NEWS_SECONDS)
        queries.act()
        one.batch()
        two.batch()
    assert queries.copies() == {(0, 10): 1, (1, 11): 1}


@pytest.mark.no_faults("makes so many calls that every run meets one")
@pytest.mark.parametrize("start", ["latest-by-key", '{"t":{"0":0,"1":0,"2":0,"3":0,"4":0,"5":0}}'])
def test_where_a_query_begins_is_said_of_the_topics_with_which_it_began(queries, clock, start):
    """The topic that comes before the query has its partitions is not compacted, and no offsets of it are given."""
    queries.log.log.topic("t").alter_config({"cleanup.policy": "compact"})
    one = by_pattern(queries, "one", startingOffsets=start)
    one.batch()
    assert one.planned == set()
    queries.log.create("u", 2)
    queries.log.append("u", {0: [b"10"], 1: [b"11"]})
    for _ in range(20):
        clock.environment().sleep(NEWS_SECONDS)
        queries.act()
        one.batch()
    assert set(one.offsets[-1]["topics"]) == {"t", "u"}
    assert queries.copies() == {(0, 10): 1, (1, 11): 1}


@pytest.mark.no_faults("makes so many calls that every run meets one")
@pytest.mark.parametrize("of_t", ['"earliest"', '{"0":0,"1":0,"2":0,"3":0,"4":0,"5":0,"6":0,"7":0}'])
def test_an_offset_may_be_given_for_a_partition_that_was_added_since_the_group_began(queries, of_t):
    queries.sharing("one")
    handle = queries.log.log.topic("t")
    incarnations = handle.journal.state.incarnations
    handle.submit(AddPartitions((tuple(incarnations),) * 2, incarnations))
    queries.settle()
    queries.log.create("v", 1)
    queries.log.append("v", {0: [b"100", b"101"]})
    two = queries.query("two", subscribe="t,v", startingOffsets=f'{{"t":{of_t},"v":{{"0":1}}}}')
    queries.settle()
    assert two.rows() == [(0, 101)]


def test_a_query_that_is_restarted_before_it_had_partitions_begins_as_if_it_were_new(queries):
    queries.log.append("t", {0: [b"-1"]})
    one = queries.query("one", startingOffsets="latest")
    one.batch()
    assert one.planned == set()
    one.kill()
    one.start()
    queries.settle()
    queries.append(3)
    queries.settle()
    assert queries.is_once


@pytest.mark.no_faults("makes so many calls that every run meets one")
def test_a_topic_that_is_there_as_the_queries_begin_is_read_from_where_they_start(queries):
    queries.log.create("u", 2)
    queries.log.append("u", {0: [b"10"], 1: [b"11"]})
    one, two = (by_pattern(queries, name, startingOffsets="latest") for name in ("one", "two"))
    queries.settle()
    queries.append(3)
    queries.settle()
    assert set(one.offsets[-1]["topics"]) | set(two.offsets[-1]["topics"]) == {"t", "u"}
    assert queries.is_once


def test_a_topic_that_was_created_again_is_reported(queries):
    (one,) = queries.sharing("one")
    queries.log.log.delete_topic("t")
    queries.log.create("t", 6)
    with pytest.raises(DataLoss, match="created again"):
        one.plan()


def test_a_topic_that_was_created_again_is_read_from_its_start_and_nothing_is_committed_before(queries):
    queries.options["failOnDataLoss"] = "false"
    (one,) = queries.sharing("one")
    queries.log.log.delete_topic("t")
    topic_id = queries.log.create("t", 6).topic_id
    queries.append(3)
    while not one.plan():
        queries.act()
    assert [queries.group.committed(topic_id, number) for number in range(6)] == [None] * 6
    queries.settle()
    assert queries.is_once
