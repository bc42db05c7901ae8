"""What queries commit beside an offset: who has read a partition how far."""

import pytest

from pyspark_log.reading.query_member import READERS_MAX, Handover, begun_with, handover_of, is_later
from pyspark_log_coordinator.group.state import CommittedOffset


def committed(text):
    return CommittedOffset(7, 0, text, 0)


def test_the_text_is_read_as_it_was_written_and_its_owner_is_the_newest_committer():
    text = Handover(partitions=6).committed("one", 120).committed("two", 180)
    assert handover_of(committed(text.text())) == text
    assert text.read == {"one": 120, "two": 180}
    assert (text.owner, text.committed("one", 3).owner, Handover().owner) == ("two", "one", None)


def test_only_the_newest_committers_are_remembered():
    text = Handover()
    for number in range(READERS_MAX + 2):
        text = text.committed(f"query-{number}", number)
    assert list(text.read) == [f"query-{number}" for number in range(2, READERS_MAX + 2)]


@pytest.mark.parametrize("text", ["", "of another program", "{", '{"read":[]}'])
def test_another_programs_text_says_nothing(text):
    assert handover_of(committed(text)) == Handover()
    assert handover_of(None) == Handover()


def test_a_partition_was_added_later_if_the_first_commits_knew_fewer_or_do_not_say_it():
    known = [committed(Handover({"one": 1}, partitions).text()) for partitions in (8, 6)]
    foreign = committed("")
    assert [begun_with(9, each) for each in ([], [foreign, *known], [foreign])] == [9, 6, None]
    assert [is_later(number, begun_with(9, known)) for number in (5, 6, 7)] == [False, True, True]
    assert is_later(0, begun_with(9, [foreign]))
    assert not is_later(0, begun_with(9, []))
