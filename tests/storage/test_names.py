"""Names that become paths."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_storage.errors import InvalidName
from pyspark_log_storage.names import NAME_LENGTH_MAX, check_node, check_topic

LEGAL = string.ascii_letters + string.digits + "._-"


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


@pytest.mark.parametrize("name", ["a" * NAME_LENGTH_MAX, "...", "-", "_", ".hidden", "a.b_c-D9"])
def test_odd_names_that_kafka_allows_are_legal(name):
    check_topic(name)
    check_node(name)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "cannot be empty"),
        (".", "cannot be"),
        ("..", "cannot be"),
        ("a" * (NAME_LENGTH_MAX + 1), "250 characters; the maximum is 249"),
        *((name, "only ASCII letters") for name in ("../x", "a/b", "a\0b", "a\n", "a b", "\u2025", "\udcff")),
    ],
)
def test_what_leads_out_of_its_folder_or_looks_like_another_name_is_refused(name, why):
    for check, kind in ((check_topic, "topic"), (check_node, "node")):
        with pytest.raises(InvalidName, match=why) as caught:
            check(name)
        assert caught.value.name == name
        assert f"invalid {kind} name {name!r}" in str(caught.value)
        assert "choose another name" in str(caught.value)
