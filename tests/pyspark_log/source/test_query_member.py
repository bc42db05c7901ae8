"""A query as a member of its group: what it owns after a restart, views that are out of date, its thread.

The queries are those of `shared_queries`; what happens between two steps of the product is patched in between.
"""

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from pyspark_log import opening
from pyspark_log.reading import stream_planner
from pyspark_log.reading.query_member import QueryMember
from pyspark_log.reading.stream_planner import StreamPlanner
from pyspark_log_coordinator.assignors.subscription import TopicPartition, decode_assignment, decode_subscription, flat
from pyspark_log_coordinator.group.offsets import Offset, ResetOffsets
from pyspark_log_coordinator.group.rebalance import ExpireSync
from pyspark_log_coordinator.group.state import GroupState
from pyspark_log_coordinator.membership.group_member import GroupMember
from pyspark_log_coordinator.membership.member_thread import MemberThread
from pyspark_log_coordinator.sync import reassigner
from pyspark_log_storage.errors import FencedInstance, FencedMember, StoreUnavailable
from tests.support.pyspark_log.source.shared_queries import PARTITIONS, Clock, Queries

ROUNDS = 100
"""In which a few hundred milliseconds pass: less than a member takes to find out by itself that work is unbalanced."""


@pytest.fixture
def woken():
    """The event that wakes the thread of the query that began last."""
    return []


@pytest.fixture
def queries(root, monkeypatch, woken):
    monkeypatch.setattr(opening, "real_environment", Clock().environment)
    monkeypatch.setattr(MemberThread, "start", lambda thread: woken.append(thread._woken))
    monkeypatch.setattr(stream_planner, "IDLE_WAIT_SECONDS", 0.0)
    return Queries(str(root))


def member_of(query):
    return query._shared.member


def once(monkeypatch, owner, name, before=lambda: None, after=lambda: None):
    """Let something happen before or after the next call of a method."""
    method = getattr(owner, name)

    def call(self, *given, **named):
        monkeypatch.setattr(owner, name, method)
        before()
        found = method(self, *given, **named)
        after()
        return found

    monkeypatch.setattr(owner, name, call)


def claims(queries, query):
    """What the group knows that a query owns."""
    found = queries.group.instance(query.name)
    (protocol,) = found.details.protocols
    return {each.partition for each in flat(decode_subscription(protocol.metadata, protocol.state, "").owned)}


def assigned(queries, query):
    found = queries.group.instance(query.name)
    return set() if found is None else set(decode_assignment(found.assignment, "").partitions.get("t", ()))


def rewind(queries, number, offset):
    topic_id = queries.log.log.topic("t").topic_id
    queries.log.log.group("g").submit(ResetOffsets({topic_id: {number: Offset(offset)}}, running=True))


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


class TestAfterARestart:
    def test_a_query_that_is_killed_as_it_leads_takes_nothing_that_it_had_given_up_before(self, queries, monkeypatch):
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

    def test_a_query_keeps_partitions_that_the_leader_has_not_seen_yet(self, queries):
        one, two = queries.sharing("one", "two")
        queries.append(3)
        while not two.plan():  # a batch that takes long
            queries.act()
        reassigner.add_partitions(queries.log.log.topic("t"), PARTITIONS + 1)
        while not one.planned & assigned(queries, one) >= {PARTITIONS}:
            queries.act()
            one.batch()
        queries.append(3, range(PARTITIONS + 1))
        while not one.plan():
            queries.act()
        one.kill()
        three = queries.query("three")
        three.plan()
        while queries.group.leader != queries.group.instance("two").details.member_id:
            queries.act()
        while queries.group.state is not GroupState.STABLE:
            queries.act()
        assert PARTITIONS in assigned(queries, one)
        one.start()
        queries.settle()
        assert queries.is_once

    def test_a_query_that_was_to_give_partitions_up_repeats_its_batch_of_them(self, queries):
        (one,) = queries.sharing("one")
        let_it_be_told_to_give_up(queries, one)
        one.kill()
        one.start()
        one.batch()
        queries.settle()
        assert queries.is_once
        assert len(one.planned) == 3

    def test_a_query_that_was_removed_claims_nothing(self, queries):
        _, two = queries.sharing("one", "two")
        two.kill()
        expire(queries, two)
        two.start()
        two.plan()
        assert claims(queries, two) == set()
        queries.settle()
        assert queries.is_once

    def test_a_query_that_is_removed_while_it_joins_is_fenced(self, queries, monkeypatch):
        _, two = queries.sharing("one", "two")
        queries.append(5)
        while not two.plan():
            queries.act()
        two.kill()
        two.start()
        once(monkeypatch, QueryMember, "_join", before=lambda: queries.expire(two))
        with pytest.raises(FencedMember):
            two.execute()

    def test_a_query_that_is_removed_while_it_joins_soon_claims_nothing(self, queries, monkeypatch):
        _, two = queries.sharing("one", "two")
        two.kill()
        two.start()
        once(monkeypatch, QueryMember, "_join", before=lambda: queries.expire(two))
        two.plan()
        for _ in range(ROUNDS):
            two.act()
        assert claims(queries, two) == set()

    def test_a_batch_is_fenced_also_while_the_member_waits_for_a_store_to_answer(self, queries):
        _, two = queries.sharing("one", "two")
        queries.append(5)
        while not two.plan():
            queries.act()
        queries.expire(two)
        member_of(two)._member._resting_until = float("inf")
        with pytest.raises(FencedMember):
            two.execute()

    def test_a_query_whose_rows_were_rewound_after_others_got_them_goes_on(self, queries):
        _, two = queries.sharing("one", "two")
        numbers = two.planned
        queries.append(5)
        while not two.batch():
            queries.act()
        two.kill()
        expire(queries, two)
        for number in numbers:
            rewind(queries, number, 0)
        queries.all[0].batch()
        two.start()
        queries.settle()
        assert set(queries.copies()) == set(queries.written)


class TestAViewThatIsOutOfDate:
    """A rebalance changes what the query owns after it has looked, and before it commits."""

    def test_commits_nothing_for_a_process_that_was_removed_and_is_a_member_again(self, queries, monkeypatch):
        _, two = queries.sharing("one", "two")
        number = min(two.planned)

        def lose_and_join_again():
            expire(queries, two)
            for _ in range(ROUNDS):
                two.act()
                queries.all[0].act()

        queries.append(5)
        while not two.batch():
            queries.act()
        once(monkeypatch, QueryMember, "hand_over", before=lose_and_join_again)
        before = queries.committed(number)
        assert before == 10
        assert not two.plan()
        assert queries.committed(number) == 18
        assert two.name in {each.details.instance_id for each in queries.group.members.values()}

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

    def test_gives_up_nothing_if_something_else_is_to_be_given_up(self, queries):
        (one,) = queries.sharing("one")
        let_it_be_told_to_give_up(queries, one)
        view = member_of(one).look()
        fewer = msgspec.structs.replace(view, leaving=frozenset(sorted(view.leaving)[:1]))
        assert not member_of(one).hand_over(fewer, [])
        assert member_of(one)._partitions.owned == view.owned

    def test_does_not_undo_a_rewind_that_it_has_not_seen(self, queries, monkeypatch):
        (one,) = queries.sharing("one")
        queries.append(5)
        assert one.batch()

        def rewind_and_let_the_thread_see_it():
            rewind(queries, 2, 4)
            for _ in range(ROUNDS):
                one.act()

        once(monkeypatch, QueryMember, "hand_over", before=rewind_and_let_the_thread_see_it)
        one.plan()
        assert queries.committed(2) == 4
        queries.settle()
        again = {row for row, times in queries.copies().items() if times == 2}
        assert again == set([row for row in queries.written if row[0] == 2][4:])

    def test_of_the_topics_is_never_older_than_that_of_the_group(self, queries, monkeypatch):
        (one,) = queries.sharing("one")

        def write_and_move_the_group_behind_it():
            queries.append(5)
            rewind(queries, 2, 15)

        once(monkeypatch, StreamPlanner, "_subscribed", after=write_and_move_the_group_behind_it)
        one.batch()
        queries.settle()
        assert queries.committed(2) == 15


class TestGivingUp:
    def test_is_followed_by_a_join_at_once(self, queries, woken):
        (one,) = queries.sharing("one")
        let_it_be_told_to_give_up(queries, one)
        one.execute()
        one.commit()
        woken[0].clear()
        one.plan()
        assert woken[0].is_set()
        for _ in range(ROUNDS):
            queries.act()
        assert claims(queries, one) == assigned(queries, one)
        assert len(claims(queries, one)) == 3

    def test_waits_for_the_end_of_the_batch(self, queries):
        (one,) = queries.sharing("one")
        two = let_it_be_told_to_give_up(queries, one)
        for _ in range(ROUNDS):
            queries.act()
        assert assigned(queries, two) == set()
        assert claims(queries, one) == set(range(6))
        queries.settle()
        assert queries.is_once


class TestItsThread:
    def test_ends_when_the_query_is_fenced(self, queries):
        _, two = queries.sharing("one", "two")
        queries.append(5)
        while not two.plan():
            queries.act()
        expire(queries, two)
        with pytest.raises(FencedMember):
            two.execute()
        assert member_of(two).act() is None
        assert member_of(two)._thread._is_stopped

    @pytest.mark.parametrize(
        ("error", "pause"),
        [
            (StoreUnavailable("root", "entry", "it does not answer"), 1.0),
            (FencedInstance("g", "one", "replaced"), None),
        ],
    )
    def test_tries_again_after_an_error_and_ends_if_another_process_has_its_place(
        self, queries, monkeypatch, error, pause
    ):
        (one,) = queries.sharing("one")

        def fail(_):
            raise error

        monkeypatch.setattr(GroupMember, "poll", fail)
        assert member_of(one).act() == pause
        assert member_of(one)._thread._is_stopped == (pause is None)


def test_a_query_that_plans_nothing_lets_others_join_by_its_thread(root, monkeypatch):
    monkeypatch.setattr(stream_planner, "IDLE_WAIT_SECONDS", 0.0)
    queries = Queries(str(root), **{"heartbeat.interval.ms": "20"})
    one = queries.query("one")
    queries.append(5)
    while one.planned != set(range(6)):
        one.batch()
    two = queries.query("two")
    while len(assigned(queries, one)) != 3 or queries.group.state is not GroupState.STABLE:
        two.batch()
    assert one.planned == set(range(6))
