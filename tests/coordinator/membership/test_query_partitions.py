"""What a Spark query owns after an assignment, what it gives up, and what it tells when it joins."""

import pytest

from pyspark_log_coordinator.assignors.subscription import (
    KEEPING_QUERY,
    NO_GENERATION,
    QUERY,
    Assignment,
    TopicPartition,
    by_topic,
    decode_subscription,
    encode_assignment,
    flat,
)
from pyspark_log_coordinator.group.state import Group, Member, MemberDetails
from pyspark_log_coordinator.membership.shared_partitions import QueryPartitions


def partitions(*numbers):
    return frozenset(TopicPartition("t", number) for number in numbers)


def assigned(generation=2, **shares):
    """A group in which each member has its share."""
    work = {name: encode_assignment(Assignment(by_topic(list(partitions(*share))))) for name, share in shares.items()}
    members = {name: Member(MemberDetails(name, ()), 0, 0, assignment=share) for name, share in work.items()}
    return Group(generation=generation, members=members, leader="other")


class Topics:
    def topics(self):
        return ("t",)

    def partitions(self, topics):
        return dict.fromkeys(topics, 6)


class Query:
    """A query that may be removed from its group."""

    def __init__(self, *, keeps=False):
        self.is_member = True
        self.has = QueryPartitions(Topics(), keeps=keeps, is_member=lambda: self.is_member)

    def told(self):
        """What it says when it joins."""
        (protocol,) = self.has.protocols(NO_GENERATION)
        return decode_subscription(protocol.metadata, protocol.state, "me")


@pytest.fixture
def query():
    """A query that owns three partitions, and has told so."""
    made = Query()
    made.has.restore([("t", 0), ("t", 1), ("t", 2)], generation=1)
    made.told()
    return made


def test_an_assignment_takes_nothing_from_a_query_until_it_gives_that_up(query):
    assert not query.has.take(assigned(me=[0], other=[4, 5]), "me")
    assert query.has.owned == partitions(0, 1, 2)
    assert query.has.leaving == partitions(1, 2)
    query.has.give_up()
    assert query.has.owned == partitions(0)
    assert query.has.leaving == partitions()


def test_what_an_assignment_adds_is_owned_at_once(query):
    assert not query.has.take(assigned(me=[0, 1, 2, 3]), "me")
    assert query.has.owned == partitions(0, 1, 2, 3)
    assert query.has.leaving == partitions()


def test_what_others_have_is_not_owned_even_if_the_query_claimed_it(query):
    assert query.has.take(assigned(me=[0], other=[1]), "me"), "it has to join again without that"
    assert query.has.owned == partitions(0, 2)
    assert query.has.leaving == partitions(2)


def test_a_query_wants_a_rebalance_if_it_has_given_up_what_it_said_to_own(query):
    group = assigned(me=[0], other=[4, 5])
    query.has.take(group, "me")
    assert not query.has.wants_rebalance(group, "me", 0.0)
    query.has.give_up()
    assert query.has.wants_rebalance(group, "me", 0.0)
    query.told()
    assert not query.has.wants_rebalance(group, "me", 0.0)


def test_a_query_joins_as_the_owner_of_what_it_has_in_the_generation_that_gave_it(query):
    query.has.take(assigned(generation=7, me=[0], other=[4, 5]), "me")
    assert set(flat(query.told().owned)) == partitions(0, 1, 2)
    assert query.told().generation == 7


def test_a_query_that_owns_nothing_names_no_generation():
    assert Query().told().generation == NO_GENERATION


def test_a_query_tells_whether_it_keeps_its_partitions():
    assert [Query(keeps=keeps).told().user_data for keeps in (True, False)] == [KEEPING_QUERY, QUERY]


def test_a_query_that_missed_a_rebalance_keeps_what_it_has_as_long_as_it_is_a_member(query):
    query.has.lose()
    assert query.has.owned == partitions(0, 1, 2)
    query.has.take(assigned(me=[0], other=[4]), "me")
    query.is_member = False
    query.has.lose()
    assert query.has.owned == query.has.leaving == partitions()
    assert query.told().generation == NO_GENERATION
