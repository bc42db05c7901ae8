"""Signal handlers, finalizers and Ctrl-C in the middle of a client's call: none waits for itself, no row is lost."""

import copy
import itertools
import pickle
import re
import threading
from concurrent.futures import Future

import pytest

from pyspark_log import Consumer, Producer, TaskRunner, Worker
from pyspark_log.clients.accumulator import Accumulator
from pyspark_log.clients.own_lock import Busy, OwnLock, OwnTurn
from pyspark_log.clients.producer_batch import RowBatch
from pyspark_log.options.clients import ProducerOptions
from pyspark_log_coordinator.membership.latch import Latch
from pyspark_log_storage.errors import InvalidInput
from tests.support.pyspark_log.clients.interrupts import at_each_step, ctrl_c, interrupted
from tests.support.pyspark_log.clients.written_rows import GUARD, values_of

MEMORY = 100_000


def accumulator():
    """Collects rows that nobody takes, and what was sent without an error."""
    made = Accumulator(ProducerOptions.parse(None, {"buffer.memory": MEMORY, "batch.size": 200, "linger.ms": 0}))
    made.accepted = []
    return made


def row(value, parts=None):
    return (b"k", value, 5, parts)


def whole_batch(made, value):
    batch = RowBatch("t", made.lock)
    batch.append(row(value), None)
    batch.bytes = 200
    made.add(batch)
    made.accepted.append(value)


def send(made, value, topic="t", parts=None):
    made.append(topic, row(value, parts), None)
    made.accepted.append(value)


def program(made):
    for number in range(5):
        send(made, b"%d" % number, parts=([("h", b"")], None, None) if number % 3 == 0 else None)
    whole_batch(made, b"5")
    send(made, b"6", topic="u")
    made.flush(0)


def taken(made):
    """Take everything, and return the values of each topic in their order; then nothing is left anywhere."""
    rows = {"t": [], "u": []}
    while made.flush(0):
        request = made.take()
        for batch in request.batches:
            for value, time in zip(batch._rows[1::3], batch._rows[2::3], strict=True):  # Arrow takes ten times as long
                assert isinstance(time, tuple) == (value in {b"0", b"3"}), "a row has its own headers"
                rows[request.topic].append(value)
        made.release(request.batches)
        made.settled(request.batches)
    assert made._free == MEMORY
    assert not made.lock.is_mine()
    return rows


def test_an_exception_at_any_step_loses_no_row_that_was_sent_and_leaves_no_lock():
    steps = 0
    for made, error in at_each_step(accumulator, program, ctrl_c):
        steps += 1
        assert isinstance(error, KeyboardInterrupt)
        send(made, b"9")
        rows = taken(made)
        assert set(made.accepted) <= {*rows["t"], *rows["u"]}
        assert rows["t"] == sorted(set(rows["t"])), "each once, in order"
    assert steps > 100


def test_what_interrupts_a_call_may_send_at_any_step():
    for made, error in at_each_step(accumulator, program, lambda made: send(made, b"late")):
        assert error is None
        rows = taken(made)
        assert rows["u"] == [b"6"]
        assert rows["t"].count(b"late") == 1
        assert [each for each in rows["t"] if each != b"late"] == [b"%d" % number for number in range(6)]
        before = made.accepted[: made.accepted.index(b"late")]
        after = made.accepted[made.accepted.index(b"late") + 2 :]  # the next one was interrupted
        place = rows["t"].index(b"late")
        assert set(before) - {b"6"} <= set(rows["t"][:place])
        assert set(after) - {b"6"} <= set(rows["t"][place:]), "rows of one thread keep their order"


def test_what_would_wait_for_itself_is_refused_and_says_what_to_do():
    outcomes = set()

    def flush(made):
        is_owner = made.lock.is_mine()
        try:
            made.flush(0)
        except InvalidInput as error:
            assert is_owner
            assert re.search("cannot flush here: a signal handler.*raise SystemExit", error.message)  # noqa: PT017
        else:
            assert not is_owner
        outcomes.add(is_owner)

    for made, error in at_each_step(accumulator, program, flush):
        assert error is None
        taken(made)
    assert outcomes == {True, False}


def test_a_lock_is_free_after_an_exception_at_any_step_of_a_call():
    for lock, error in at_each_step(OwnLock, lambda lock: lock.call(threading.get_ident, 1), ctrl_c):
        assert isinstance(error, KeyboardInterrupt)
        assert not lock.is_mine()
    lock = OwnLock()
    with lock.lock, pytest.raises(InvalidInput, match="cannot close here"):
        lock.refuse_interrupts("close")


def in_another_thread(act):
    result = Future()

    def run():
        try:
            result.set_result(act())
        except Busy as error:
            result.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(GUARD)
    return result


def test_a_turn_is_for_one_thread_and_free_after_an_exception_at_any_step():
    for turn, error in at_each_step(lambda: OwnTurn("Consumer"), lambda turn: turn.take(lambda: len("x")), ctrl_c):
        assert isinstance(error, KeyboardInterrupt)
        assert turn.take(lambda: 1) == 1

    def nest():
        with pytest.raises(InvalidInput, match="this Consumer is in the middle of a call in this thread"):
            turn.take(lambda: 1)
        with turn.calling_out():
            assert turn.take(lambda: 2) == 2
        assert isinstance(in_another_thread(lambda: turn.take(lambda: 3)).exception(), Busy)
        return True

    turn = OwnTurn("Consumer")
    assert turn.take(nest)
    assert in_another_thread(lambda: turn.take(lambda: 3)).result() == 3


@pytest.mark.parametrize("before", [lambda _: None, Latch.set, lambda latch: (latch.set(), latch.clear())])
def test_a_latch_may_be_set_by_what_interrupts_its_owner(before):
    def make():
        latch = Latch()
        before(latch)
        return latch

    for latch, error in at_each_step(make, lambda latch: latch.wait(0.001), Latch.set):
        assert error is None
        assert latch.wait(0)
    for latch, error in at_each_step(make, Latch.set, Latch.set):
        assert error is None
        assert latch.wait(0)


class TestAFuture:
    def made(self):
        lock = OwnLock()
        batch = RowBatch("t", lock)
        return batch, batch.append(row(b"v"), None)

    def settle(self, batch):
        batch.rows(1, 0)
        batch.succeed({0: (7, 8)})

    @pytest.mark.parametrize("is_settled", [False, True])
    def test_whose_first_use_is_interrupted_at_any_step_still_gets_its_result(self, is_settled):
        def make():
            batch, delivery = self.made()
            if is_settled:
                self.settle(batch)
            return batch, delivery

        for (batch, delivery), error in at_each_step(make, lambda made: made[1].done(), ctrl_c):
            assert isinstance(error, KeyboardInterrupt)
            assert not batch.lock.is_mine()
            if not is_settled:
                self.settle(batch)
            assert delivery.result(0).offset == 7

    def test_is_not_waited_for_in_the_middle_of_a_call(self):
        batch, delivery = self.made()
        with batch.lock.lock, pytest.raises(InvalidInput, match="cannot wait for a row here"):
            delivery.result()


@pytest.mark.parametrize("end", ["flush", "close"])
def test_a_handler_of_a_running_producer_ends_or_is_refused_at_once(log, end):
    def handle(producer):
        try:
            getattr(producer, end)()
        except InvalidInput as error:
            assert "here: a signal handler or a finalizer" in error.message  # noqa: PT017 -- it may also succeed

    sent = 0
    for step in range(1, 40, 3):
        with Producer(log.path, linger_ms=0) as producer:
            producer.send("one", b"0")
            is_reached, error = interrupted(lambda: producer.send("one", b"1"), step, lambda: handle(producer))
            assert error is None or "is closed" in str(error)
            sent += 1 + (error is None)
        assert is_reached or step > 10
    assert len(values_of(log, "one")[0]) >= sent


def test_a_handler_may_close_a_consumer_at_any_step_of_a_poll(log):
    log.append("one", {0: [b"row"]})
    names = itertools.count()

    def make():
        consumer = Consumer(log.path, group_id=f"g{next(names)}")
        consumer.assign([("one", 0)], "earliest")
        return consumer

    for consumer, error in at_each_step(make, lambda made: made.poll(timeout_ms=1), Consumer.close, stride=9):
        assert error is None or "is closed" in str(error)
        with pytest.raises(InvalidInput, match="this Consumer is closed"):
            consumer.poll()
        assert consumer._group is None


def test_an_iteration_that_is_interrupted_at_any_step_loses_at_most_the_row_that_it_would_return(log):
    log.append("one", {0: [b"0", b"1", b"2"]})

    def make():
        consumer = Consumer(log.path)
        consumer.assign([("one", 0)], "earliest")
        return consumer

    for consumer, _ in at_each_step(make, next, ctrl_c):
        position = consumer.position(("one", 0))
        assert position in {0, 1}
        assert [row.offset for row in consumer.poll()] == [0, 1, 2][position:]


@pytest.mark.parametrize("name", ["Producer", "Consumer", "Worker"])
def test_a_client_is_not_pickled_and_says_what_to_do(log, name):
    client = {
        "Producer": lambda: Producer(log.path),
        "Consumer": lambda: Consumer(log.path, group_id="g"),
        "Worker": lambda: Worker(log.path, "w", ["a"], TaskRunner()),
    }[name]()
    with client:
        for copied in (pickle.dumps, copy.copy):
            with pytest.raises(InvalidInput, match=f"a {name} cannot be pickled.*make one in each process"):
                copied(client)


def test_positions_right_after_subscribe_say_to_poll_first(log):
    with Consumer(log.path, group_id="g") as consumer:
        consumer.subscribe(["one"])
        for call in (consumer.position, consumer.pause, lambda at: consumer.seek(at, 0)):
            with pytest.raises(InvalidInput, match="is not assigned; poll first: the group assigns"):
                call(("one", 0))
