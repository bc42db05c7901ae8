"""Layout: the keys of stored objects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_storage import layout

NUMBERS = st.integers(0, layout.NUMBER_MAX)


@given(a=NUMBERS, b=NUMBERS)
def test_numbers_sort_as_their_keys_do_and_newest_first_the_other_way_round(a, b):
    assert (a < b) == (layout.number(a) < layout.number(b))
    assert (a < b) == (layout.newest_first(b) < layout.newest_first(a))
    assert layout.number_of_newest_first(layout.newest_first(a)) == a
    assert len(layout.number(a)) == len(layout.newest_first(a)) == 20
    if a != b:
        assert (a < b) == (layout.born_name(a, "zz") < layout.born_name(b, "aa")), "they sort by what a writer knew"


@pytest.mark.parametrize("text", ["", "1" * 19, "1" * 21, "+" + "1" * 19, "1_" * 10, "\u00b2" * 20, "\u0661" * 20])
def test_other_text_is_no_number(text):
    with pytest.raises(ValueError, match="is not a number of 20 digits"):
        layout.number_of_newest_first(text)


def test_a_topics_paths_contain_its_id_so_that_two_lives_share_no_folder():
    folder = layout.topic_folder("t", "id-1")
    assert folder == "topics/t/id-1/"
    assert layout.topic_journal("t", "id-1") == "topics/t/id-1/journal/"
    assert layout.append_file("t", "id-1", layout.born_name(7, "n")) == f"{folder}append/00000000000000000007-n"
    assert not layout.topic_folder("t", "id-11").startswith(folder)


def test_what_a_writer_sends_in_parts_is_known_by_its_key():
    segment, born = layout.segment_name(7, 8, "abc"), layout.born_name(7, "n")
    folder = layout.topic_folder("t", "id-1")
    own = (layout.append_file("t", "id-1", born), *layout.segment_files(f"{folder}3/{segment}"))
    assert all(map(layout.is_written_in_parts, (*own, *layout.segment_files(f"{folder}3/{segment}.parquet"))))
    assert not any(map(layout.is_written_in_parts, ("a/b", f"x/{own[0]}", f"{own[1]}.old", f"{folder}description")))


def test_a_file_whose_name_only_contains_that_of_a_segments_file_is_none():
    name = f"{layout.segment_name(7, 8, 'abc')}.log"
    assert layout.is_segment_file(name)
    assert not any(map(layout.is_segment_file, (f"{name}.mine", f"mine-{name}", f"{name}\n")))
