"""Rows that programs read: from where, in which order, and what happens at the ends of the log."""

import asyncio
import re
import threading
from pathlib import Path

import numpy as np
import pytest

from pyspark_log import Consumer, ConsumerRecord, OffsetAndTimestamp, Producer, TopicPartition
from pyspark_log.clients import reading
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_storage.errors import (
    CorruptObject,
    DataLoss,
    InvalidInput,
    UnknownTopic,
)
from tests.support.plain_log import NOON_MS, PlainLog, flip_bit

GUARD_MS = 60_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def log(tmp_path):
    made = PlainLog(tmp_path)
    made.create("t", 2)
    return made


@pytest.fixture
def consumer(log):
    with Consumer(log.path) as made:
        yield made


def values(records):
    return [record.value for record in records]


def offsets(records):
    return [record.offset for record in records]


def numbered(count, first=0):
    return [b"%d" % number for number in range(first, first + count)]


def delete_before(log, offset, partition=0):
    log.log.topic("t").submit(DeleteRecords(partition, offset))


def interrupt_second_fetch(monkeypatch):
    read_rows, calls = reading.read_rows, []

    def interrupted(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return read_rows(*arguments, **options)

    monkeypatch.setattr(reading, "read_rows", interrupted)


class TestPoll:
    def test_returns_rows_with_all_that_they_have(self, log, consumer):
        with Producer(log.path) as producer:
            producer.send("t", b"v", key=b"k", headers={"h": b"w"}, partition=0, timestamp_ms=NOON_MS)
            producer.send("t", None, partition=0, timestamp_ms=NOON_MS + 1)
        consumer.assign([T0], "earliest")
        assert consumer.poll() == [
            ConsumerRecord("t", 0, 0, NOON_MS, b"k", b"v", (("h", b"w"),)),
            ConsumerRecord("t", 0, 1, NOON_MS + 1, None, None, ()),
        ]

    def test_returns_no_more_rows_than_asked_for(self, log):
        log.append("t", {0: numbered(100)})
        with Consumer(log.path, max_poll_records=30) as consumer:
            consumer.assign([T0], "earliest")
            assert [len(consumer.poll()) for _ in range(5)] == [30, 30, 30, 10, 0]
            consumer.seek(T0, 50)
            assert offsets(consumer.poll(max_records=3)) == [50, 51, 52]
            consumer.seek(T0, 51)
            assert values(consumer.poll(max_records=2)) == numbered(2, 51)

    def test_needs_an_assignment_and_room_for_a_row(self, consumer):
        with pytest.raises(InvalidInput, match="no partition is assigned"):
            consumer.poll()
        consumer.assign([T0], "earliest")
        with pytest.raises(InvalidInput, match="max_records is 0; give 1 or more"):
            consumer.poll(max_records=0)

    @pytest.mark.parametrize("timeout_ms", [-1, float("-inf"), float("nan")])
    def test_needs_a_time_that_can_pass(self, consumer, timeout_ms):
        consumer.assign([T0], "earliest")
        for poll in (consumer.poll, consumer.poll_batches):
            with pytest.raises(InvalidInput, match=f"timeout_ms is {timeout_ms}; give 0 or more"):
                poll(timeout_ms)

    def test_gives_each_partition_its_turn(self, log):
        for _ in range(20):
            log.append("t", {0: numbered(10), 1: numbered(10)})
        with Consumer(log.path, max_partition_fetch_bytes=100) as consumer:
            consumer.assign([T0, T1], "earliest")
            first = consumer.poll(max_records=60)
        assert {row.partition for row in first} == {0, 1}

    @pytest.mark.parametrize("timeout_ms", [GUARD_MS, float("inf")])
    def test_waits_for_a_row_that_arrives(self, log, consumer, timeout_ms):
        consumer.assign([T0], "latest")
        threading.Timer(0.05, log.append, ("t", {0: [b"late"]})).start()
        assert values(consumer.poll(timeout_ms)) == [b"late"]

    def test_of_a_deleted_topic_fails(self, log, consumer):
        log.append("t", {0: numbered(3)})
        consumer.assign([T0], "earliest")
        consumer.poll()
        log.delete("t")
        with pytest.raises(UnknownTopic, match="was deleted"):
            consumer.poll(GUARD_MS)

    def test_that_meets_damage_loses_no_row_of_another_partition(self, log, consumer):
        log.append("t", {0: numbered(3)})
        log.append("t", {1: numbered(3)})
        *_, file = log.files("t")
        flip_bit(file, 8 * 200)
        consumer.assign([T0, T1], "earliest")
        assert values(consumer.poll()) == numbered(3)
        with pytest.raises(CorruptObject, match="partition 1"):
            consumer.poll()
        assert consumer.position(T1) == 0
        consumer.pause(T1)
        log.append("t", {0: [b"more"]})
        assert values(consumer.poll(GUARD_MS)) == [b"more"]

    @pytest.mark.parametrize("read", [Consumer.poll, Consumer.poll_batches, next])
    def test_that_is_interrupted_keeps_the_positions(self, log, consumer, monkeypatch, read):
        log.append("t", {0: numbered(5), 1: numbered(5)})
        consumer.assign([T0, T1], "earliest")
        interrupt_second_fetch(monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            read(consumer)
        assert (consumer.position(T0), consumer.position(T1)) == (0, 0)
        assert len(consumer.poll()) == 10


class TestAnIteration:
    def test_returns_row_after_row_and_knows_its_position(self, log, consumer):
        log.append("t", {0: numbered(10)})
        consumer.assign([T0], "earliest")
        found = []
        for record in consumer:
            found.append(record.value)
            assert consumer.position(T0) == record.offset + 1
            if len(found) == 4:
                break
        assert values(consumer.poll()) == numbered(6, 4)
        assert found == numbered(4)


class TestPositions:
    def test_begin_where_assign_says(self, log, consumer):
        log.append("t", {0: numbered(5), 1: numbered(5)})
        consumer.assign([T0, T1], {T0: 3, T1: 5})
        assert offsets(consumer.poll()) == [3, 4]
        consumer.assign([T0], "earliest")
        assert offsets(consumer.poll()) == list(range(5))
        consumer.assign([T0], "latest")
        assert consumer.poll() == []
        assert consumer.position(T0) == 5

    def test_stay_when_other_partitions_are_assigned(self, log, consumer):
        log.append("t", {0: numbered(5), 1: numbered(5)})
        consumer.assign([T0], "earliest")
        consumer.poll(max_records=2)
        consumer.assign([T0, T1], {T1: 4})
        assert {key: consumer.position(key) for key in consumer.assignment()} == {T0: 2, T1: 4}

    @pytest.mark.parametrize(
        ("partitions", "start"),
        [([T0, ("gone", 0)], "earliest"), ([T0, ("t", 7)], "latest"), ([T0, T1], {T0: 1, T1: -1})],
    )
    def test_stay_when_other_partitions_cannot_be_assigned(self, log, consumer, partitions, start):
        log.append("t", {0: numbered(5)})
        consumer.assign([T0], {T0: 3})
        with pytest.raises((UnknownTopic, InvalidInput)):
            consumer.assign(partitions, start)
        assert (consumer.assignment(), consumer.position(T0)) == ({T0}, 3)

    def test_begin_anew_when_the_topic_was_created_again(self, log, consumer):
        log.append("t", {0: numbered(5)})
        consumer.assign([T0], {T0: 3})
        log.delete("t")
        log.create("t")
        consumer.assign([T0], "earliest")
        log.append("t", {0: [b"new"]})
        assert values(consumer.poll(GUARD_MS)) == [b"new"]

    @pytest.mark.parametrize(("reset", "found"), [("earliest", [3, 4]), ("latest", [])])
    def test_that_are_not_given_or_outside_of_the_log_are_those_of_auto_offset_reset(self, log, reset, found):
        log.append("t", {0: numbered(5)})
        delete_before(log, 3)
        with Consumer(log.path, auto_offset_reset=reset) as consumer:
            consumer.assign([T0])
            assert offsets(consumer.poll()) == found
            for wrong in (1, 99):
                consumer.seek(T0, wrong)
                assert offsets(consumer.poll()) == found

    @pytest.mark.parametrize("is_paused", [True, False])
    def test_at_the_end_are_known_before_the_first_turn_of_a_partition(self, log, consumer, monkeypatch, is_paused):
        monkeypatch.setattr(reading, "BUSY_LOOK_SECONDS", 0)
        log.append("t", {0: numbered(10), 1: [b"before"]})
        consumer.assign([T0, T1], {T0: 0})
        if is_paused:
            consumer.pause(T1)
        assert len(consumer.poll(max_records=5)) == 5
        log.append("t", {1: [b"after"]})
        assert len(consumer.poll(max_records=5)) == 5
        consumer.resume(T1)
        assert values(consumer.poll(GUARD_MS)) == [b"after"]

    def test_outside_of_the_log_are_an_error_if_the_option_says_so(self, log):
        log.append("t", {0: numbered(5)})
        delete_before(log, 3)
        with Consumer(log.path, auto_offset_reset="none") as consumer:
            consumer.assign([T0])
            with pytest.raises(InvalidInput, match="no offset is given for topic 't', partition 0"):
                consumer.poll()
            consumer.seek(T0, 1)
            with pytest.raises(DataLoss, match="offset 1 has expired, the log begins at 3"):
                consumer.poll()
            consumer.seek(T0, 9)
            with pytest.raises(DataLoss, match="offset 9 is not in the log, which ends at 5"):
                consumer.poll()
            consumer.seek(T0, 4)
            assert offsets(consumer.poll()) == [4]

    def test_that_expire_again_and_again_while_they_are_fetched_are_reset(self, log, monkeypatch):
        log.append("t", {0: numbered(10)})
        read_rows, expired = reading.read_rows, [7, 5, 3]

        def overtaken(*arguments, **options):
            if expired:
                delete_before(log, expired.pop())
                raise DataLoss("topic 't', partition 0: rows expired while they were read")
            return read_rows(*arguments, **options)

        monkeypatch.setattr(reading, "read_rows", overtaken)
        with Consumer(log.path, auto_offset_reset="earliest") as consumer:
            consumer.assign([T0], "earliest")
            assert offsets(consumer.poll()) == [7, 8, 9]

    def test_move_by_seeks(self, log, consumer):
        log.append("t", {0: numbered(5), 1: numbered(5)})
        consumer.assign([T0, T1], "latest")
        consumer.seek_to_beginning(T0)
        assert (consumer.position(T0), consumer.position(T1)) == (0, 5)
        consumer.seek_to_beginning()
        assert (consumer.position(T0), consumer.position(T1)) == (0, 0)
        log.append("t", {0: numbered(1)})
        consumer.seek_to_end()
        assert (consumer.position(T0), consumer.position(T1)) == (6, 5)

    def test_of_rows_that_are_newer_than_the_last_look_are_in_the_log(self, log):
        log.append("t", {0: numbered(5), 1: numbered(5)})
        with Consumer(log.path, auto_offset_reset="none") as consumer:
            consumer.assign([T0, T1], "earliest")
            assert offsets(consumer.poll(max_records=1)) == [0]
            log.append("t", {0: numbered(2), 1: numbered(2)})  # the program may know where, from its Producer
            consumer.seek(T1, 6)
            assert consumer.position(T1) == 6
            consumer.seek(T0, 6)
            assert offsets(consumer.poll()) == [6, 6]

    @pytest.mark.parametrize(
        ("offset", "why"), [(-1, "is negative"), ("3", "is not a whole number"), (1.5, "is not a whole number")]
    )
    def test_are_whole_numbers(self, consumer, offset, why):
        consumer.assign([T0])
        for call in (consumer.seek, lambda key, offset: consumer.assign([key], {key: offset})):
            with pytest.raises(InvalidInput, match=f"offset {offset!r} {why}"):
                call(T0, offset)
        consumer.seek(T0, np.int64(3))

    def test_are_of_partitions_that_are_assigned_by_topic_and_number(self, consumer):
        consumer.assign([("t", 0)])
        with pytest.raises(InvalidInput, match="partition 1 is not assigned"):
            consumer.seek(T1, 0)
        with pytest.raises(InvalidInput, match="start is 'begin'"):
            consumer.assign([T0], "begin")
        for wrong in (("t", "0"), (0, 0), ("t",), "t0", 5):
            with pytest.raises(InvalidInput, match="is not a partition; give the topic's name"):
                consumer.assign([wrong])


class TestPause:
    def test_returns_no_rows_of_a_partition_until_it_is_resumed(self, log, consumer):
        log.append("t", {0: numbered(5), 1: numbered(5)})
        consumer.assign([T0, T1], "earliest")
        consumer.poll(max_records=2)
        consumer.pause(T0)
        assert consumer.paused() == {T0}
        assert {row.partition for row in consumer.poll()} == {1}
        consumer.resume(T0)
        assert offsets(consumer.poll()) == [2, 3, 4]
        assert consumer.paused() == set()

    def test_counts_for_the_next_row_of_an_iteration(self, log, consumer):
        log.append("t", {0: numbered(3), 1: numbered(3)})
        consumer.assign([T0, T1], "earliest")
        first = next(consumer)
        consumer.pause((first.topic, first.partition))
        assert {next(consumer).partition for _ in range(3)} == {1 - first.partition}
        consumer.resume((first.topic, first.partition))
        assert next(consumer).offset == 1


class TestWhatThereIs:
    def test_of_topics_and_partitions(self, log, consumer):
        log.create("u")
        assert consumer.topics() == {"t", "u"}
        assert consumer.partitions_for_topic("t") == {0, 1}
        assert consumer.partitions("t", "u") == [T0, T1, TopicPartition("u", 0)]
        with pytest.raises(UnknownTopic):
            consumer.partitions_for_topic("missing")
        with pytest.raises(InvalidInput, match="has no partition 2"):
            consumer.assign([("t", 2)])

    def test_of_offsets(self, log, consumer):
        log.append("t", {0: numbered(5)})
        delete_before(log, 2)
        assert consumer.beginning_offsets([T0, T1]) == {T0: 2, T1: 0}
        assert consumer.end_offsets([T0, T1]) == {T0: 5, T1: 0}

    def test_of_offsets_for_times(self, log, consumer):
        log.append("t", {0: numbered(4)}, times_ms=[100, 200, 300, 400])
        found = consumer.offsets_for_times({T0: 150, T1: 150})
        assert found == {T0: OffsetAndTimestamp(1, 200), T1: None}
        assert consumer.offsets_for_times({T0: 401}) == {T0: None}
        assert consumer.offsets_for_times({("t", 0): 150}) == {T0: OffsetAndTimestamp(1, 200)}


def test_a_cancelled_wait_does_not_take_the_row_back(log):
    async def send(producer):
        waiting = asyncio.wrap_future(producer.send("t", b"", partition=0))
        waiting.cancel()
        await asyncio.sleep(0)

    with Producer(log.path, linger_ms=3_600_000) as producer:
        asyncio.run(send(producer))
        producer.flush()
    assert log.log.topic("t").journal.state.partitions[0].high_watermark == 1


def test_rows_are_iterated_while_others_work(log):
    async def produce(producer):
        for number in range(30):
            await asyncio.wrap_future(producer.send("t", b"%d" % number, partition=0))

    async def main():
        found = []
        with Producer(log.path, linger_ms=0) as producer, Consumer(log.path) as consumer:
            consumer.assign([T0], "earliest")
            producing = asyncio.create_task(produce(producer))
            async for record in consumer:
                found.append(record.value)
                assert consumer.position(T0) == record.offset + 1
                if len(found) == 30:
                    break
            await producing
        return found

    assert asyncio.run(asyncio.wait_for(main(), GUARD_MS / 1000)) == numbered(30)


def test_a_cancelled_iteration_keeps_the_position_and_a_closed_consumer_ends_it(log):
    log.append("t", {0: [b"1", b"2", b"3"]})

    async def main(consumer):
        waiting = asyncio.ensure_future(anext(consumer))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert consumer.position(("t", 0)) == 0
        found = []
        async for record in consumer:
            found.append(record.value)
            consumer.close()
        return found

    with Consumer(log.path, auto_offset_reset="earliest") as consumer:
        consumer.assign([("t", 0)])
        assert asyncio.run(asyncio.wait_for(main(consumer), GUARD_MS / 1000)) == [b"1"]


PAGE = Path(__file__).parents[3] / "docs" / "reference" / "clients.md"


def test_the_program_of_the_page_runs(tmp_path, capsys):
    PlainLog(tmp_path).create("flights")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    program = next(block for block in blocks if "import Consumer, Producer" in block)
    exec(program.replace("/data/log", str(tmp_path)), {})
    assert capsys.readouterr().out.splitlines() == ["0 0 b'EWR' b'UA 1545'"]


def test_a_consumer_has_caught_up_when_it_has_returned_all_rows_that_it_saw(log, consumer):
    assert not consumer.caught_up(), "nothing is assigned"
    log.append("t", {0: numbered(3)})
    consumer.assign([T0, T1], "earliest")
    assert not consumer.caught_up()
    assert len(consumer.poll(GUARD_MS, max_records=2)) == 2
    assert not consumer.caught_up()
    assert values(consumer.poll(GUARD_MS)) == [b"2"]
    assert consumer.caught_up()
    log.append("t", {0: numbered(2)})
    assert next(consumer)
    assert not consumer.caught_up(), "an iteration has read a row that it has not returned"
    assert next(consumer)
    assert consumer.caught_up()
    log.append("t", {1: numbered(1)})
    consumer.pause(T1)
    assert consumer.poll(0) == []
    assert consumer.caught_up(), "a paused partition does not count"
