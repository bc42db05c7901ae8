"""Queries that share a topic in one group: each row is read by one of them, also after kills."""

import random

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from pyspark_log.reading import stream_planner
from pyspark_log.reading.query_member import QueryMember
from pyspark_log_coordinator.assignors.subscription import TopicPartition, decode_assignment, decode_subscription, flat
from pyspark_log_coordinator.group.offsets import Offset, ResetOffsets
from pyspark_log_coordinator.group.rebalance import ExpireSync
from pyspark_log_coordinator.group.state import GroupState
from pyspark_log_coordinator.membership.group_member import NEWS_SECONDS, GroupMember
from pyspark_log_coordinator.replication.reassignment import AddPartitions
from pyspark_log_storage.errors import DataLoss, FencedInstance, FencedMember, InvalidOption
from tests.support.direct import source
from tests.support.pyspark_log.source.shared_queries import Query
from tests.support.rings import sample

NAMES = ("one", "two", "three")
SCHEDULES = 12
STEPS = 60


def act_at_random(queries, dice, *, expires):
    """Let chance kill and start queries, at any moment of their batches; return the last batches of fenced ones."""
    doubtful = set()
    for _ in range(STEPS):
        query = dice.choice(queries.all)
        act = dice.choice(["append", "act", "act", "batch", "batch", "plan", "execute", "kill", "start", "expire"])
        if act == "append":
            queries.append(dice.randrange(1, 4))
        elif act == "act":
            queries.act()
        elif act == "expire":
            if expires:
                queries.expire(query)
        elif act == "start" and query.reader is None:
            query.start()
        elif query.reader is not None:
            try:
                step(query, act, ReadMaxRows(dice.randrange(1, 20)))
            except FencedMember:
                doubtful |= replaced(queries, query)
    return doubtful


def step(query, act, limit):
    has_begun = len(query.offsets) > query.commits
    if act == "kill":
        query.kill()
    elif act == "batch":
        query.batch(limit)
    elif act == "plan" and not has_begun:
        query.plan(limit)
    elif act == "execute" and has_begun:
        query.execute()


def replaced(queries, query):
    """Start a query with a new checkpoint in place of one that was fenced; return the rows of its last batch."""
    query.kill()
    queries.gone.append(query)
    queries.all.remove(query)
    queries.query(f"{query.name}-{len(queries.gone)}")
    return set(query.sink.get(max(query.sink, default=0), []))


def finish(queries):
    """Start all queries again and run them until all is read; return the last batches of those that are fenced."""
    doubtful = set()
    while True:
        for each in queries.all:
            if each.reader is None:
                each.start()
        try:
            queries.settle()
        except FencedMember:
            fenced = next(each for each in queries.all if each.is_fenced)
            doubtful |= replaced(queries, fenced)
        else:
            return doubtful


@pytest.mark.parametrize("seed", sample(range(SCHEDULES), 3))
def test_each_row_is_processed_once_whenever_queries_are_killed_and_started(queries, seed):
    dice = random.Random(seed)
    for name in NAMES:
        queries.query(name)
    act_at_random(queries, dice, expires=False)
    finish(queries)
    assert queries.gone == []
    assert queries.is_once


@pytest.mark.parametrize("seed", sample(range(SCHEDULES), 3))
def test_if_sessions_expire_no_row_is_lost_and_only_fenced_queries_may_have_read_rows_again(queries, seed):
    dice = random.Random(seed)
    for name in NAMES:
        queries.query(name)
    doubtful = act_at_random(queries, dice, expires=True)
    doubtful |= finish(queries)
    copies = queries.copies()
    assert set(copies) == set(queries.written)
    assert {row for row, times in copies.items() if times > 1} <= doubtful


def begin_batch(queries, query):
    """Let a query plan a batch with rows of all its partitions, and be killed before it reads them."""
    queries.append(5)
    while not query.plan():
        queries.act()
    query.kill()


def test_a_replay_is_fenced_after_others_got_the_partitions_of_the_batch(queries):
    _, two = queries.sharing("one", "two")
    begin_batch(queries, two)
    queries.expire(two)
    queries.all.remove(two)
    queries.settle()
    two.start()
    with pytest.raises(FencedMember, match=r"gave partitions of query 'two' to others.*t-\d \(one\)"):
        two.execute()
    queries.all.append(two)
    assert queries.is_once


def test_a_query_that_returns_after_its_session_goes_on_if_all_that_it_had_processed_was_committed(queries):
    one, two = queries.sharing("one", "two")
    two.kill()
    queries.expire(two)
    queries.append(5)
    queries.settle()
    assert one.planned == set(range(6))
    two.start()
    queries.append(5)
    queries.settle()
    assert len(two.planned) == 3
    assert queries.is_once


def test_of_two_processes_with_one_instance_id_the_older_one_fails(queries):
    (one,) = queries.sharing("one")
    older = one.reader
    one.start()
    queries.append(1)
    queries.settle()
    one.reader = older
    with pytest.raises(FencedInstance, match="one"):
        one.plan()


def test_a_rewind_is_taken_up_by_the_query_that_owns_the_partition(queries):
    queries.sharing("one", "two")
    topic_id = queries.log.log.topic("t").topic_id
    queries.log.log.group("g").submit(ResetOffsets({topic_id: {2: Offset(4)}}, running=True))
    queries.settle()
    again = {row for row, times in queries.copies().items() if times == 2}
    assert again == {(2, number) for number in range(4, 10)}
    queries.append(5)
    queries.settle()
    assert {row for row, times in queries.copies().items() if times == 2} == again


def test_a_limit_counts_the_rows_of_the_querys_own_partitions(queries):
    one = queries.query("one", maxOffsetsPerTrigger="6")
    two = queries.query("two")
    queries.append(10)
    queries.settle()
    assert len(one.planned) == len(two.planned) == 3
    batches = len(one.sink)
    queries.append(10)
    queries.settle()
    assert [len(one.sink[number]) for number in range(batches, len(one.sink))] == [6] * 5
    assert queries.is_once


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"group.protocol": "cooperative"}, "group.id"),
        ({"group.protocol": "cooperative", "group.id": "g"}, "group.instance.id"),
        ({"group.protocol": "eager", "group.id": "g"}, "group.protocol"),
        ({"group.id": "g", "group.instance.id": "one"}, "group.protocol"),
        ({"group.id": "g", "group.keep.partitions": "true"}, "group.protocol"),
    ],
)
def test_options_that_do_not_go_together_are_refused(queries, options, match):
    made = source(queries.log.path, subscribe="t", **options)
    with pytest.raises(InvalidOption, match=match):
        made.streamReader(made.schema()).getDefaultReadLimit()


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"group.instance.id": "other"}, "give each query its own checkpoint"),
        ({"group.id": "other"}, "another group"),
    ],
)
def test_a_checkpoint_of_another_member_is_refused(queries, changed, match):
    (one,) = queries.sharing("one")
    one.kill()
    one.options |= changed
    one.start()
    queries.append(1)
    with pytest.raises(InvalidOption, match=match):
        one.plan()


def test_a_checkpoint_of_a_query_that_did_not_share_is_refused(queries):
    one = queries.query("one")
    one.options = {"subscribe": "t", "startingOffsets": "earliest", "group.id": "g"}
    one.start()
    queries.append(1)
    assert one.batch()
    one.options |= {"group.protocol": "cooperative", "group.instance.id": "one"}
    one.start()
    with pytest.raises(InvalidOption, match="cannot become a member"):
        one.plan()


class TestAvailableNow:
    def begin(self, queries, name):
        query = queries.query(name)
        query.reader.prepareForTriggerAvailableNow()
        return query

    def test_waits_for_the_querys_part_and_ends_when_that_is_read(self, queries):
        queries.append(10)
        one = self.begin(queries, "one")
        assert one.batch()
        assert queries.is_once
        assert not one.batch()
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

    @pytest.mark.slow
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


def by_pattern(queries, name, **options):
    """A query that reads topic u as soon as there is one."""
    query = Query(queries.log.path, name, subscribePattern="[tu]", **options)
    del query.options["subscribe"]
    queries.all.append(query)
    return query.start()


def test_where_a_query_begins_is_said_of_the_topics_with_which_it_began(queries, clock):
    """No offsets are given of the topic that comes before the query has its partitions."""
    one = by_pattern(queries, "one", startingOffsets='{"t":{"0":0,"1":0,"2":0,"3":0,"4":0,"5":0}}')
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


ROUNDS = 100
"""In which a few hundred milliseconds pass: less than a member takes to find out by itself that work is unbalanced."""


def member_of(query):
    return query._shared.member


def once(monkeypatch, owner, name, before):
    """Let something happen before the next call of a method."""
    method = getattr(owner, name)

    def call(self, *given, **named):
        monkeypatch.setattr(owner, name, method)
        before()
        return method(self, *given, **named)

    monkeypatch.setattr(owner, name, call)


def claims(queries, query):
    """What the group knows that a query owns."""
    found = queries.group.instance(query.name)
    (protocol,) = found.details.protocols
    return {each.partition for each in flat(decode_subscription(protocol.metadata, protocol.state, "").owned)}


def assigned(queries, query):
    found = queries.group.instance(query.name)
    return set() if found is None else set(decode_assignment(found.assignment, "").partitions.get("t", ()))


def expire(queries, query):
    """Let the others have what a query had, and read and commit new rows of it."""
    queries.expire(query)
    others = [each for each in queries.all if each is not query]
    away, queries.all = queries.all, others
    queries.append(3)
    queries.settle()
    queries.settle()
    queries.all = away


def let_it_be_told_to_give_up(queries, query):
    """Let a second query join while this one carries out a batch of all partitions."""
    queries.append(5)
    assert query.plan()
    two = queries.query("two")
    two.batch()
    for _ in range(ROUNDS):
        queries.act()
        if member_of(query)._partitions.leaving:
            return two
    raise AssertionError(queries.group)


def give_up_and_be_killed(queries, query, other):
    """Let a query give up what is leaving, and be killed before Spark has written that down; another one gets it."""
    for _ in range(ROUNDS):
        queries.act()
        other.batch()
        if other.planned == {3, 4, 5}:
            query.kill()
            return
        query.reader.latestOffset(query.executed, ReadMaxRows(2**40))
    raise AssertionError(queries.group)


def be_killed_as_the_leader(queries, query, monkeypatch):
    """Let a query be killed as it is about to assign the partitions, and the others wait for that long enough."""

    def kill():
        raise KeyboardInterrupt

    def act():
        for _ in range(ROUNDS):
            queries.act()

    once(monkeypatch, GroupMember, "_assign", before=kill)
    with pytest.raises(KeyboardInterrupt):
        act()
    query.kill()
    group = queries.group
    assert group.members[group.leader].details.instance_id == query.name
    queries.log.log.group("g").submit(ExpireSync(group.barriers))


def test_a_query_that_is_killed_as_it_leads_takes_nothing_that_it_had_given_up_before(queries, monkeypatch):
    (one,) = queries.sharing("one")
    two = queries.query("two")
    give_up_and_be_killed(queries, one, two)
    queries.append(3)
    while not two.plan():
        queries.act()
    queries.query("three").plan()
    one.start()
    one.plan()
    assert claims(queries, one) == {0, 1, 2, 3, 4, 5}
    be_killed_as_the_leader(queries, one, monkeypatch)
    while queries.group.state is not GroupState.STABLE:
        queries.act()
    assert assigned(queries, one) == {0, 1, 2}
    one.start()
    one.batch()
    two.batch()
    queries.settle()
    assert queries.is_once


def test_a_query_that_was_removed_claims_nothing(queries):
    _, two = queries.sharing("one", "two")
    two.kill()
    expire(queries, two)
    two.start()
    two.plan()
    assert claims(queries, two) == set()
    queries.settle()
    assert queries.is_once


def test_a_query_that_is_removed_while_it_joins_is_fenced(queries, monkeypatch):
    _, two = queries.sharing("one", "two")
    queries.append(5)
    while not two.plan():
        queries.act()
    two.kill()
    two.start()
    once(monkeypatch, QueryMember, "_join", before=lambda: queries.expire(two))
    with pytest.raises(FencedMember):
        two.execute()


class TestAViewThatIsOutOfDate:
    """A rebalance changes what the query owns after it has looked, and before it commits."""

    def test_commits_nothing_under_a_member_id_that_it_has_got_since(self, queries):
        (one,) = queries.sharing("one")
        view = member_of(one).look()
        assert member_of(one).hand_over(view, [])
        assert not member_of(one).hand_over(msgspec.structs.replace(view, member_id="a former one"), [])

    def test_commits_nothing_of_partitions_that_the_query_does_not_own_any_more(self, queries):
        one, two = queries.sharing("one", "two")
        view = member_of(one).look()
        foreign = frozenset(TopicPartition("t", number) for number in two.planned)
        entries = queries.log.log.group("g").journal.number
        assert not member_of(one).hand_over(msgspec.structs.replace(view, owned=view.owned | foreign), [])
        assert queries.log.log.group("g").journal.number == entries


def test_a_query_gives_partitions_up_at_the_end_of_its_batch(queries):
    (one,) = queries.sharing("one")
    two = let_it_be_told_to_give_up(queries, one)
    for _ in range(ROUNDS):
        queries.act()
    assert assigned(queries, two) == set()
    assert claims(queries, one) == set(range(6))
    queries.settle()
    assert queries.is_once


def test_the_thread_of_a_query_ends_when_it_is_fenced(queries):
    _, two = queries.sharing("one", "two")
    queries.append(5)
    while not two.plan():
        queries.act()
    expire(queries, two)
    with pytest.raises(FencedMember):
        two.execute()
    assert member_of(two).act() is None
    assert member_of(two)._thread._is_stopped
