"""Checkpoints, in Kafka's text formats."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_storage.errors import CorruptObject
from pyspark_log_storage.names import is_topic
from pyspark_log_storage.objects.checkpoints import decode_epochs, decode_offsets, encode_epochs, encode_offsets

OFFSETS = st.integers(0, 2**63 - 1)
TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=20).filter(is_topic)


@given(st.dictionaries(st.tuples(TOPICS, st.integers(0, 2**31 - 1)), OFFSETS))
def test_offsets_come_back(offsets):
    assert decode_offsets(encode_offsets(offsets), "x") == offsets


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), OFFSETS), max_size=9, unique_by=lambda pair: pair[0]))
def test_epochs_come_back(pairs):
    starts = tuple(zip(sorted(epoch for epoch, _ in pairs), sorted(start for _, start in pairs), strict=True))
    assert decode_epochs(encode_epochs(starts), "x") == starts


def test_the_text_is_kafkas():
    assert encode_offsets({("flights", 1): 42, ("flights", 0): 7}) == b"0\n2\nflights 0 7\nflights 1 42\n"
    assert encode_epochs([(0, 0), (3, 100)]) == b"0\n2\n0 0\n3 100\n"


@pytest.mark.parametrize(
    "data",
    [
        b"0\n",
        b"0\n1\nt 0 1",
        b"0\n2\nt 0 1\n",
        b"0\n1\nt 0 1 2\n",
        b"0\n1\nt 0 -1\n",
        b"0\n1\nt 0 01\n",
        b"0\n1\n 0 1\n",
        b"0\n2\nt 0 1\nt 0 1\n",
        b"x\n1\nt 0 1\n",
        b"0\n1\nt 0 " + b"9" * 5000 + b"\n",
        "0\n1\nt 0 \u0661\n".encode(),
    ],
)
def test_what_is_no_checkpoint_of_offsets_is_an_error_that_names_it(data):
    with pytest.raises(CorruptObject, match="the file"):
        decode_offsets(data, "the file")


@pytest.mark.parametrize("data", [b"0\n1\n1 2 3\n", b"0\n2\n1 0\n1 5\n", b"0\n2\n2 0\n1 5\n", b"0\n2\n1 5\n2 4\n"])
def test_epochs_that_do_not_rise_are_an_error_that_names_the_file(data):
    with pytest.raises(CorruptObject, match="the file"):
        decode_epochs(data, "the file")


@pytest.mark.parametrize("decode", [decode_offsets, decode_epochs])
def test_another_version_is_damage_because_a_digit_may_have_changed(decode):
    with pytest.raises(CorruptObject, match="checkpoint format 1 where 0 is expected"):
        decode(b"1\n0\n", "x")
