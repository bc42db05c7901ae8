"""Reading segments and finding positions by time, with damaged copies and unreachable nodes."""

import pytest

from pyspark_log.reading.positions import offset_for_time
from pyspark_log_storage import layout
from pyspark_log_storage.errors import StoreUnavailable
from pyspark_log_storage.parquet import parquet_segment
from pyspark_log_storage.segments import segment
from tests.support.coordinator.replicated_topic import ALL, ReplicatedTopic
from tests.support.coordinator.several_nodes import Stores
from tests.support.pyspark_log.replicated_rows import (
    BATCHES,
    LARGE,
    ROWS,
    Fallible,
    damage,
    lose,
    planned,
    read,
    reads,
    rolled,
    row,
    store,
)


@pytest.fixture(params=["log", "parquet"])
def topic(request, monkeypatch):
    """Topic t of BATCHES large rows in as many files, which are on all three nodes; node 0 leads."""
    monkeypatch.setattr(parquet_segment, "ROW_GROUP_BYTES", LARGE)  # each row is a row group, as it is a chunk
    topic = ReplicatedTopic(Stores(Fallible), segment_format=request.param)
    for number in range(BATCHES):
        topic.append({0: [row(number)]}, on=ALL, acks="all")
    return topic


# Segments


@pytest.mark.parametrize("spoil", ["damage", "lose"])
def test_another_nodes_index_is_read_before_the_whole_log_is(topic, spoil):
    key = rolled(topic, 20)
    split = planned(topic, 5, 6)
    if spoil == "damage":
        damage(topic, "0", f"{key}.index", 80)
    else:
        store(topic, "0").delete(f"{key}.index")
    reads(topic)
    assert read(topic, split) == ROWS[5:6]
    counts = reads(topic)
    assert counts["0"] <= 2
    assert counts["1"] <= 4
    assert "2" not in counts


def test_the_only_whole_log_is_scanned_if_no_index_is_whole(topic):
    key = rolled(topic, 20)
    for node in ALL:
        store(topic, node).delete(f"{key}.index")
    for node in ("0", "1"):
        damage(topic, node, layout.segment_file(key), segment.scan(store(topic, node), key)[3].position + 70)
    assert read(topic, planned(topic)) == ROWS


# Positions


def offsets_of_times(topic, number):
    return offset_for_time(topic.handle, 0, number)


@pytest.mark.parametrize("rolls", [0, 5])
@pytest.mark.parametrize("trouble", ["damaged", "lost", "unavailable"])
def test_a_position_by_time_is_found_on_another_node(rolls, trouble):
    topic = ReplicatedTopic(Stores(Fallible))
    for number in range(8):
        topic.append({0: [row(number)]}, on=ALL, acks="all")
    if rolls:
        rolled(topic, rolls)
    if trouble == "damaged":
        for key in topic.keys("0"):
            damage(topic, "0", topic.handle.append_file("").removesuffix("append/") + key, 80)
    elif trouble == "lost":
        lose(topic, "0")
    else:
        store(topic, "0").error = StoreUnavailable
    assert offsets_of_times(topic, 0) == 0
    assert offsets_of_times(topic, 1) is None
