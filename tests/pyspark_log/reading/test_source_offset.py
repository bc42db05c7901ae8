import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_log.reading import source_offset
from pyspark_log.reading.source_offset import Position, SourceOffset, TopicPositions, parse, to_json
from pyspark_log_storage.errors import CorruptObject, InvalidOption, NewerFormat

OFFSET = SourceOffset(
    {
        "b": TopicPositions("id-b", {10: Position(7, 1), 2: Position(5, 0)}, {2: Position(3, 0)}),
        "a": TopicPositions("id-a", {0: Position(2**62, 4)}),
    }
)


def test_a_batch_begins_where_its_predecessor_ended_unless_it_has_a_begin():
    before = SourceOffset({"b": TopicPositions("id-b", {2: Position(1, 0), 10: Position(6, 1)})})
    after = SourceOffset({"b": OFFSET.topics["b"]})
    assert after.begins(before) == {("b", 2): Position(3, 0), ("b", 10): Position(6, 1)}

    with pytest.raises(CorruptObject, match="it has no begin for partition 10 of topic 'b'"):
        after.begins(SourceOffset())


def test_an_offset_of_a_newer_version_is_refused():
    with pytest.raises(NewerFormat, match="offset version 2"):
        parse({"version": source_offset.VERSION + 1, "topics": {}})


POSITIONS = st.dictionaries(st.integers(0, 20), st.builds(Position, st.integers(0, 2**63 - 1), st.integers(0, 9)))
TOPICS = st.builds(
    TopicPositions,
    st.text(max_size=4),
    end=POSITIONS,
    begin=POSITIONS,
    compacted=st.dictionaries(st.integers(0, 20), st.integers(0, 9)),
)


@settings(max_examples=30, deadline=None)
@given(*[st.dictionaries(st.sampled_from("abc"), TOPICS, max_size=2)] * 2)
def test_every_offset_round_trips_and_is_one_text(topics, away):
    text = json.dumps(to_json(SourceOffset(topics, away=away)))
    assert parse(json.loads(text)) == SourceOffset(topics, away=away)
    assert json.dumps(to_json(parse(json.loads(text)))) == text


@pytest.mark.parametrize(
    "foreign",
    [
        {"version": 1, "topics": {"t": {"end": {}}}},
        {"version": 1, "topics": {"t": {"id": "x", "end": {"zero": [1, 0]}}}},
        {"version": 1, "topics": {"t": {"id": "x", "end": {"-1": [1, 0]}}}},
        {"version": 1, "topics": {"t": {"id": "x", "end": {"0": [-1, 0]}}}},
    ],
)
def test_an_offset_that_is_incomplete_or_impossible_is_damaged(foreign):
    with pytest.raises(CorruptObject, match="the offset in the checkpoint is damaged"):
        parse(foreign)


@pytest.mark.parametrize("foreign", [{"t": {"0": 5}}, {"version": {"0": 5}}, {"version": "one"}])
def test_an_offset_of_another_source_is_refused(foreign):
    with pytest.raises(InvalidOption, match="the checkpoint is that of a query"):
        parse(foreign)
