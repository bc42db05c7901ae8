"""range, roundrobin, sticky and cooperative-sticky: every partition once, balance, stickiness, and no theft."""

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_log_coordinator.assignors import consumer, subscription
from pyspark_log_coordinator.assignors.subscription import (
    Assignment,
    Subscriber,
    TopicPartition,
    flat,
)
from pyspark_log_coordinator.group.state import JoinedMember
from pyspark_log_storage.errors import CorruptObject

PATIENT = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""The machine may be busy."""
COMPLETE = ("range", "roundrobin", "sticky")
TOPICS = ("t", "u", "v")


def members(**owned):
    """Return members that all want the topic t, and what they own of it."""
    return [Subscriber(name, ("t",), Assignment({"t": tuple(numbers)}, 1)) for name, numbers in owned.items()]


def numbers(shares):
    """Return the partitions of each member of the topic t, by number."""
    return {name: [each.partition for each in share] for name, share in shares.items()}


def next_round(current, shares, generation):
    """Return the members as they rejoin, with what they were assigned, and not with what they have to give up."""
    return [
        Subscriber(
            each.member_id,
            each.topics,
            Assignment(subscription.by_topic(shares[each.member_id]), generation),
            each.instance_id,
        )
        for each in current
    ]


# The stories of Kafka's documentation


def test_roundrobin_deals_out_in_turn_and_sticky_balances_better_if_members_want_different_topics():
    assert numbers(consumer.assign_roundrobin({"t": 4}, members(C1=(), C2=(), C3=()))) == {
        "C1": [0, 3],
        "C2": [1],
        "C3": [2],
    }
    wanting = {"C0": ("t",), "C1": ("t", "u"), "C2": ("t", "u", "v")}
    counts, group = {"t": 1, "u": 2, "v": 3}, [Subscriber(name, of) for name, of in wanting.items()]
    v = [("v", 0), ("v", 1), ("v", 2)]
    assert consumer.assign_roundrobin(counts, group) == {"C0": [("t", 0)], "C1": [("u", 0)], "C2": [("u", 1), *v]}
    assert consumer.assign_sticky(counts, group) == {"C0": [("t", 0)], "C1": [("u", 0), ("u", 1)], "C2": v}


def test_of_two_claims_the_newer_generation_counts_and_of_equal_ones_none():
    both = [Subscriber(name, ("t",), Assignment({"t": (0, 1)}, at)) for name, at in (("A", 1), ("B", 2))]
    assert numbers(consumer.assign_sticky({"t": 2}, both)) == {"A": [1], "B": [0]}
    assert numbers(consumer.assign_cooperative_sticky({"t": 2}, both)) == {"A": [], "B": [0]}
    alike = members(A=(0, 1), B=(1, 2))
    assert numbers(consumer.assign_cooperative_sticky({"t": 3}, alike)) == {"A": [0], "B": [2]}
    assert numbers(consumer.assign_sticky({}, members(A=(0, 1)))) == {"A": []}, "the topic was deleted"


# What holds of any group

names = st.lists(st.sampled_from("ABCDEF"), min_size=1, max_size=6, unique=True)
partitions = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7), max_size=3)


@st.composite
def groups(draw, *, same_topics=False):
    """Return how many partitions each topic has, and members with claims, which may contradict one another."""
    counts = draw(partitions)
    shared = tuple(draw(st.lists(st.sampled_from(TOPICS), unique=True)))
    group = []
    for name in draw(names):
        topics = shared if same_topics else tuple(draw(st.lists(st.sampled_from(TOPICS), unique=True)))
        claims = draw(st.lists(st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 8)), unique=True))
        generation = draw(st.integers(1, 2))
        instance = draw(st.sampled_from(["", f"i{name}"]))
        group.append(Subscriber(name, topics, Assignment(subscription.by_topic(claims), generation), instance))
    return counts, group


def existing(counts, group):
    """Return the partitions of topics that somebody wants."""
    wanted = {topic for each in group for topic in each.topics}
    return sorted(TopicPartition(topic, n) for topic in wanted for n in range(counts.get(topic, 0)))


@pytest.mark.parametrize("name", COMPLETE)
@PATIENT
@given(groups())
def test_every_partition_has_exactly_one_member_that_wants_it(name, given_group):
    counts, group = given_group
    shares = consumer.ASSIGNORS[name](counts, group)
    assert sorted(each for share in shares.values() for each in share) == existing(counts, group)
    topics = {each.member_id: each.topics for each in group}
    assert all(each.topic in topics[name] for name, share in shares.items() for each in share)


def moved_one_by_one(counts, group):
    """Return what sticky assigns, by its rules taken literally: every step looks at all members and partitions."""
    ordered = sorted(group, key=lambda each: each.order)
    wanting = {topic: [each.member_id for each in ordered if topic in each.topics] for topic in counts}
    owners = {partition: consumer.owner_of(some) for partition, some in consumer.claims_on(ordered).items()}
    every = [TopicPartition(topic, number) for topic in counts for number in range(counts[topic]) if wanting[topic]]
    free = [each for each in every if owners.get(each) not in wanting[each.topic]]
    shares = {
        member.member_id: [each for each in every if each not in free and owners[each] == member.member_id]
        for member in ordered
    }

    def least(topic):
        return min(wanting[topic], key=lambda name: len(shares[name]))

    for partition in sorted(free, key=lambda each: (len(wanting[each.topic]), each)):
        shares[least(partition.topic)].append(partition)
    while True:
        moves = [
            (-len(share), place, len(shares[least(each.topic)]), each.topic, owners.get(each) == name, -each.partition)
            for place, (name, share) in enumerate(shares.items())
            for each in share
            if len(share) - len(shares[least(each.topic)]) > 1
        ]
        if not moves:
            return {name: sorted(share) for name, share in shares.items()}
        _, place, _, topic, _, number = min(moves)
        partition, taker = TopicPartition(topic, -number), least(topic)
        shares[ordered[place].member_id].remove(partition)
        shares[taker].append(partition)


@PATIENT
@given(groups())
def test_partitions_move_one_by_one_to_the_member_with_fewest(given_group):
    counts, group = given_group
    assert consumer.assign_sticky(counts, group) == moved_one_by_one(counts, group)


@PATIENT
@given(groups(same_topics=True))
def test_members_of_the_same_topics_keep_as_much_as_balance_allows(given_group):
    counts, group = given_group
    shares = consumer.assign_sticky(counts, group)
    claims, every = consumer.claims_on(group), existing(counts, group)
    owned = {each.member_id: 0 for each in group}
    kept = 0
    for partition in every:
        owner = consumer.owner_of(claims.get(partition, []))
        if owner is not None:
            owned[owner] += 1
            kept += partition in shares[owner]
    least, more = divmod(len(every), len(group))
    may_have_one_more = sum(count > least for count in owned.values())
    assert kept == sum(min(count, least) for count in owned.values()) + min(more, may_have_one_more)


@PATIENT
@given(groups())
def test_a_balanced_group_stays_as_it_is_and_when_a_member_leaves_the_others_keep_everything(given_group):
    counts, group = given_group
    shares = consumer.assign_sticky(counts, group)
    again = next_round(group, shares, 3)
    assert consumer.assign_sticky(counts, again) == shares
    assert consumer.assign_cooperative_sticky(counts, again) == shares
    if len(group) > 1 and all(each.topics == group[0].topics for each in group):
        left = consumer.assign_sticky(counts, again[1:])
        assert all(set(shares[each.member_id]) <= set(left[each.member_id]) for each in again[1:])


@PATIENT
@given(groups())
def test_cooperative_gives_nothing_that_another_member_still_owns(given_group):
    counts, group = given_group
    shares = consumer.assign_cooperative_sticky(counts, group)
    for member in group:
        new = set(shares[member.member_id]) - set(flat(member.has.partitions))
        others = [each for each in group if each is not member]
        assert not any(new & set(flat(other.has.partitions)) for other in others)
        assert len(shares[member.member_id]) == len(set(shares[member.member_id]))
    given_out = [each for share in shares.values() for each in share]
    assert len(given_out) == len(set(given_out))


@PATIENT
@given(groups(same_topics=True), groups())
def test_cooperative_comes_to_rest_in_two_generations_or_soon(of_same_topics, of_others):
    counts, group = of_same_topics
    rounds = [consumer.assign_cooperative_sticky(counts, group)]
    for generation in (3, 4):
        rounds.append(consumer.assign_cooperative_sticky(counts, next_round(group, rounds[-1], generation)))
    assert sorted(each for share in rounds[1].values() for each in share) == existing(counts, group)
    assert rounds[1] == rounds[2]
    assert all(set(first[name]) <= set(second[name]) for first, second in pairwise(rounds) for name in first)
    counts, group = of_others
    for generation in range(3, 8):
        shares = consumer.assign_cooperative_sticky(counts, group)
        group = next_round(group, shares, generation)
    assert sorted(each for share in shares.values() for each in share) == existing(counts, group)


# Encodings


@PATIENT
@given(groups())
def test_subscriptions_and_assignments_are_stored(given_group):
    _, group = given_group
    for each in group:
        assert subscription.decode_topics(subscription.encode_topics(each.topics), "A") == each.topics
        assert subscription.decode_assignment(subscription.encode_assignment(each.has), "A") == each.has


def test_what_is_not_understood_names_its_member():
    for said in (b"", b"\xff", b"\x92\x01\x90", b"no"):
        with pytest.raises(CorruptObject, match="the subscription of member 'A' is damaged"):
            subscription.decode_topics(said, "A")
    with pytest.raises(CorruptObject, match="the assignment of member 'A' is damaged"):
        subscription.decode_assignment(b"\xff", "A")
    assert subscription.decode_assignment(b"", "A") == Assignment()


# The leader


def test_a_static_member_that_is_away_keeps_what_it_was_assigned():
    said = subscription.encode_topics(("t",))
    away = subscription.encode_assignment(Assignment({"t": (2, 3)}))
    joined = [JoinedMember("A", "", said), JoinedMember("B", "b", said, b"", away)]
    for protocol in ("sticky", "cooperative-sticky"):
        work = consumer.assign(protocol, 5, joined, {"t": 4})
        assert subscription.decode_assignment(work["B"], "B").partitions == {"t": (2, 3)}


def test_half_of_many_partitions_move_to_a_new_member_and_each_is_looked_at_once(monkeypatch):
    looked, owner_of = [], consumer.owner_of
    monkeypatch.setattr(consumer, "owner_of", lambda claimants: looked.append(claimants) or owner_of(claimants))
    shares = consumer.assign_sticky({"t": 10_000}, members(A=range(10_000), B=()))
    assert {name: len(share) for name, share in shares.items()} == {"A": 5_000, "B": 5_000}
    assert len(looked) == 10_000
