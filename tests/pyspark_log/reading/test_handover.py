"""What queries commit beside an offset: who has read a partition how far."""

import pytest

from pyspark_log.reading.query_member import READERS_MAX, Handover, begun_with, handover_of, is_later
from pyspark_log_coordinator.group.state import CommittedOffset


def committed(text):
    return CommittedOffset(7, 0, text, 0)


def test_the_text_is_read_as_it_was_written():
    text = Handover(partitions=6).committed("one", 120).committed("two", 180)
    assert handover_of(committed(text.text())) == text
    assert text.read == {"one": 120, "two": 180}


def test_the_owner_is_the_newest_committer():
    text = Handover().committed("one", 1).committed("two", 2)
    assert text.owner == "two"
    assert text.committed("one", 3).owner == "one"
    assert Handover().owner is None


def test_only_the_newest_committers_are_remembered():
    text = Handover()
    for number in range(READERS_MAX + 2):
        text = text.committed(f"query-{number}", number)
    assert list(text.read) == [f"query-{number}" for number in range(2, READERS_MAX + 2)]


@pytest.mark.parametrize("text", ["", "of another program", "{", '{"read":[]}'])
def test_another_programs_text_says_nothing(text):
    assert handover_of(committed(text)) == Handover()
    assert handover_of(None) == Handover()


def test_a_partition_was_added_later_if_the_topic_had_fewer_when_the_group_began_to_read_it():
    known = [committed(Handover({"one": 1}, partitions).text()) for partitions in (6, 8)]
    assert [is_later(number, begun_with(9, known)) for number in (5, 6, 7)] == [False, True, True]


def test_a_partition_counts_as_added_later_if_the_commits_do_not_say_it():
    assert is_later(0, begun_with(9, [committed("")]))
    assert not is_later(0, begun_with(9, []))


def test_how_many_partitions_the_topic_had_is_known_from_the_first_commits_or_not_at_all():
    known = [committed(Handover({"one": 1}, partitions).text()) for partitions in (8, 6)]
    assert begun_with(9, []) == 9
    assert begun_with(9, [committed(""), *known]) == 6
    assert begun_with(9, [committed("")]) is None
