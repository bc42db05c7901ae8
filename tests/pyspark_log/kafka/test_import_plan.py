"""Where an import reads on in Kafka, and what it refuses, by what Kafka and the log say."""

import msgspec
import pytest

from pyspark_log.kafka.client import KafkaTopic, PartitionOffsets
from pyspark_log.kafka.import_plan import PartitionImport, plan, producer_of
from pyspark_log.kafka.offset_headers import KAFKA_OFFSET, first_reaching, without
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.topic.machine import DeleteRecords, SetFirstOffsets
from pyspark_log_storage.errors import InvalidInput
from tests.support.coordinator.topics import after, commit, file, started

TOPIC = KafkaTopic("t", "cluster", "id", 1, {})


def planned(state, begin=0, end=100, start=None, *, keeps=True):
    [found] = plan(
        TOPIC, [PartitionOffsets(begin, end)], [begin if start is None else start], "t", state, keeps_offsets=keeps
    )
    return found


def imported(rows, following, state=None, topic=TOPIC):
    """Return a topic into which rows were imported, up to Kafka's offset `following`."""
    return after(state or started(), commit(ProducerClaim(producer_of(topic, 0), "", "", following), file({0: rows})))


@pytest.mark.parametrize("state", [None, started()])
def test_a_new_partition_begins_where_it_is_read_from(state):
    assert planned(state, 5, 100) == PartitionImport(0, 5, 100, 5, is_resumed=False)
    assert planned(state, 5, 100, start=50) == PartitionImport(0, 50, 100, 50, is_resumed=False)


def test_an_import_goes_on_behind_its_last_batch():
    assert planned(imported(30, 30)) == PartitionImport(0, 30, 100, 30, is_resumed=True)
    assert planned(imported(30, 40), keeps=False) == PartitionImport(0, 40, 100, 30, is_resumed=True)


def test_a_partition_that_was_empty_at_the_first_import_has_no_older_rows_to_skip():
    """With --from latest in each of its runs, an import would lose what was written between two of them."""
    two = msgspec.structs.replace(TOPIC, partitions=2)
    for state in (imported(5, 5, started(2)), after(started(2), SetFirstOffsets({0: 5}))):
        found = plan(two, [PartitionOffsets(0, 5), PartitionOffsets(3, 9)], [5, 9], "t", state, keeps_offsets=True)
        assert found[1] == PartitionImport(1, 3, 9, 3, is_resumed=False)


def test_rows_that_have_expired_here_are_not_imported_again():
    assert planned(after(imported(30, 30), DeleteRecords(0, 30))).next == 30


def test_rows_that_expired_in_kafka_before_they_were_imported_are_a_gap():
    with pytest.raises(InvalidInput, match="no row with offset 30, the next is 50"):
        planned(imported(30, 30), 50, 100)
    assert planned(imported(30, 30), 50, 100, keeps=False) == PartitionImport(0, 50, 100, 30, is_resumed=True)


def test_kept_offsets_need_the_same_end_on_both_sides():
    with pytest.raises(InvalidInput, match="ends at offset 30, and the next row has offset 40 in Kafka"):
        planned(imported(30, 40))
    with pytest.raises(InvalidInput, match="ends at offset 35, and the next row has offset 30 in Kafka"):
        planned(after(imported(30, 30), commit(None, file({0: 5}))))


@pytest.mark.parametrize("keeps", [True, False])
def test_rows_of_others_and_of_an_earlier_topic_of_this_name_are_refused(keeps):
    with pytest.raises(InvalidInput, match="has rows that are not from topic 't'"):
        planned(after(started(), commit(None, file({0: 5}))), keeps=keeps)
    earlier = msgspec.structs.replace(TOPIC, topic_id="earlier")
    with pytest.raises(InvalidInput, match="has rows that are not from topic 't'"):
        planned(imported(5, 5, topic=earlier), keeps=keeps)
    expired = [
        after(each, DeleteRecords(0, 5))
        for each in (imported(5, 5, topic=earlier), after(started(), commit(None, file({0: 5}))))
    ]
    # A rebuild knows the files of rows that are still there.
    rebuilt = msgspec.structs.replace(after(started(), SetFirstOffsets({0: 5})), restored=1)
    for state in (*expired, rebuilt):
        with pytest.raises(InvalidInput, match="had rows that are not from topic 't'"):
            planned(state, keeps=keeps)


def test_a_topic_that_kafka_has_lost_rows_of_is_refused():
    with pytest.raises(InvalidInput, match="ends at offset 20, but rows up to offset 30 are here"):
        planned(imported(30, 30), 0, 20)


def test_a_topic_with_fewer_partitions_than_in_kafka_is_refused():
    topic = msgspec.structs.replace(TOPIC, partitions=2)
    with pytest.raises(InvalidInput, match="add-partitions t --partitions 2"):
        plan(topic, [PartitionOffsets(0, 1)] * 2, [0, 0], "t", started(), keeps_offsets=True)


def test_a_bisection_finds_the_first_row_at_or_after_an_offset():
    offsets = {5: 1, 6: 4, 7: 5, 8: 9}
    for wanted in range(12):
        expected = next((here for here, there in offsets.items() if there >= wanted), 9)
        assert first_reaching(offsets.__getitem__, 5, 9, wanted) == expected


def test_only_the_last_header_with_an_offset_is_taken_off():
    others = [(KAFKA_OFFSET, b"no"), (KAFKA_OFFSET, None), (KAFKA_OFFSET, b"9" * 5000), (KAFKA_OFFSET, b"-1")]
    headers = [(KAFKA_OFFSET, b"1"), ("x", b"2"), (KAFKA_OFFSET, b"3"), *others]
    assert without(headers, KAFKA_OFFSET) == [*headers[:2], *headers[3:]]
    assert without(headers[3:], KAFKA_OFFSET) == headers[3:]
