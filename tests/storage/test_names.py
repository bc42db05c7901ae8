"""Names that become paths."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_storage.errors import InvalidName
from pyspark_log_storage.names import NAME_LENGTH_MAX, check_node, check_topic

LEGAL = string.ascii_letters + string.digits + "._-"
CHECKS = pytest.mark.parametrize("check", [check_topic, check_node])


@given(name=st.text(LEGAL, min_size=1, max_size=NAME_LENGTH_MAX).filter(lambda name: name not in {".", ".."}))
def test_kafkas_characters_are_legal(name):
    check_topic(name)
    check_node(name)


@given(
    left=st.text(LEGAL, max_size=10),
    bad=st.characters().filter(lambda character: character not in LEGAL),
    right=st.text(LEGAL, max_size=10),
)
def test_one_other_character_is_too_many(left, bad, right):
    for check in (check_topic, check_node):
        with pytest.raises(InvalidName, match="only ASCII letters"):
            check(left + bad + right)


@CHECKS
@pytest.mark.parametrize("name", ["a/b", "../a", "a\n", "a\0", "é", "٣", " a", "a b"])
def test_what_could_leave_its_folder_is_refused(check, name):
    with pytest.raises(InvalidName) as caught:
        check(name)
    assert caught.value.name == name


@CHECKS
@pytest.mark.parametrize("name", [".", ".."])
def test_names_that_mean_folders_are_refused(check, name):
    with pytest.raises(InvalidName, match="cannot be"):
        check(name)


@CHECKS
def test_an_empty_name_is_refused(check):
    with pytest.raises(InvalidName, match="cannot be empty"):
        check("")


@CHECKS
@pytest.mark.parametrize("name", ["...", "-", "_", ".hidden", "a.b_c-D9"])
def test_odd_names_that_kafka_allows_are_legal(check, name):
    check(name)


@CHECKS
def test_the_longest_name_is_legal(check):
    check("a" * NAME_LENGTH_MAX)


@CHECKS
def test_a_longer_name_is_refused(check):
    with pytest.raises(InvalidName, match="250 characters; the maximum is 249"):
        check("a" * (NAME_LENGTH_MAX + 1))


@pytest.mark.parametrize(("check", "kind"), [(check_topic, "topic"), (check_node, "node")])
def test_the_message_says_what_the_name_was_for(check, kind):
    with pytest.raises(InvalidName, match=f"invalid {kind} name 'a b'.*choose another name"):
        check("a b")
