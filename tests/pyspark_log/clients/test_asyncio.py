"""Producer and Consumer in an event loop."""

import asyncio

import pytest

from pyspark_log import Consumer, Producer
from pyspark_log_storage.errors import UnknownTopic
from tests.support.plain_log import PlainLog

GUARD = 60


@pytest.fixture
def log(root):
    made = PlainLog(root)
    made.create("t", 2)
    return made


def test_a_future_can_be_awaited(log):
    async def send(producer):
        futures = [asyncio.wrap_future(producer.send("t", b"%d" % number, partition=0)) for number in range(100)]
        return [each.offset for each in await asyncio.gather(*futures)]

    with Producer(log.path) as producer:
        assert asyncio.run(asyncio.wait_for(send(producer), GUARD)) == list(range(100))


def test_an_awaited_future_raises_the_error(log):
    async def send(producer):
        await asyncio.wrap_future(producer.send("t", b""))
        log.delete("t")
        await asyncio.wrap_future(producer.send("t", b""))

    with Producer(log.path) as producer, pytest.raises(UnknownTopic):
        asyncio.run(asyncio.wait_for(send(producer), GUARD))


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
    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        async def produce(producer):
            for number in range(30):
                await asyncio.wrap_future(producer.send("t", b"%d" % number, partition=0))

        ticking = asyncio.create_task(tick())
        with Producer(log.path, linger_ms=0) as producer, Consumer(log.path) as consumer:
            consumer.assign([("t", 0)], "earliest")
            producing = asyncio.create_task(produce(producer))
            found = []
            async for record in consumer:
                found.append(record.value)
                assert consumer.position(("t", 0)) == record.offset + 1
                if len(found) == 30:
                    break
            await producing
        ticking.cancel()
        return found, ticks

    found, ticks = asyncio.run(asyncio.wait_for(main(), GUARD))
    assert found == [b"%d" % number for number in range(30)]
    assert ticks > 30


def test_a_cancelled_iteration_loses_no_row(log):
    log.append("t", {0: [b"%d" % number for number in range(1000)]})

    async def take(consumer, found):
        async for record in consumer:
            found.append(record.offset)
            await asyncio.sleep(0)

    async def main():
        found = []
        with Consumer(log.path, max_poll_records=10) as consumer:
            consumer.assign([("t", 0)], "earliest")
            while len(found) < 1000:
                taking = asyncio.create_task(take(consumer, found))
                await asyncio.sleep(0.002)
                taking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await taking
        return found

    assert asyncio.run(asyncio.wait_for(main(), GUARD)) == list(range(1000))


def test_an_iteration_ends_when_the_consumer_is_closed(log):
    async def main():
        consumer = Consumer(log.path)
        consumer.assign([("t", 0)])
        asyncio.get_running_loop().call_later(0.05, consumer.close)
        return [record async for record in consumer]

    assert asyncio.run(asyncio.wait_for(main(), GUARD)) == []


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
        assert asyncio.run(asyncio.wait_for(main(consumer), GUARD)) == [b"1"]
