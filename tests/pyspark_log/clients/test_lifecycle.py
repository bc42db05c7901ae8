"""How producers and consumers end: closed, deleted, forked, or with their process."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from pyspark_log import Consumer, Producer
from pyspark_log.clients.accumulator import Accumulator
from pyspark_log.clients.sender import Sender
from pyspark_log_storage.errors import InvalidInput
from tests.support.bare_venv import environment_with_pandas
from tests.support.plain_log import PlainLog

ROOT = Path(__file__).parents[3]
GUARD = 60


@pytest.fixture
def log(root):
    made = PlainLog(root)
    made.create("t")
    return made


def rows(log):
    return log.log.topic("t").journal.state.partitions[0].high_watermark


def run(program, *arguments):
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    env = environment_with_pandas()
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=GUARD)


class TestAProducer:
    def test_that_is_closed_has_written_everything_and_takes_nothing_more(self, log):
        producer = Producer(log.path, linger_ms=3_600_000)
        producer.send("t", b"")
        producer.close()
        assert rows(log) == 1
        for call in (
            lambda: producer.send("t", b""),
            lambda: producer.send_batch("t", None),
            lambda: producer.partitions_for("t"),
            lambda: producer.batch().__enter__(),
        ):
            with pytest.raises(InvalidInput, match="this Producer is closed; make a new one"):
                call()
        producer.close()
        assert producer.flush() == 0

    def test_that_a_callback_has_closed_has_written_everything_when_it_is_closed_again(self, log):
        closed = threading.Event()
        with Producer(log.path, linger_ms=0, batch_size=1) as producer:
            producer.send("t", b"", on_delivery=lambda *_: (producer.close(), closed.set()))
            futures = [producer.send("t", b"") for _ in range(50)]
            closed.wait(GUARD)
            with pytest.raises(InvalidInput, match="this Producer is closed"):
                producer.send("t", b"")
        assert all(future.done() for future in futures)
        assert rows(log) == 51

    def test_that_a_callback_has_closed_writes_everything_when_the_program_ends(self, log):
        program = """
            import sys, threading
            from pyspark_log import Producer
            producer, closed = Producer(sys.argv[1], linger_ms=0, batch_size=1), threading.Event()
            producer.send("t", b"", on_delivery=lambda *_: (producer.close(), closed.set()))
            for _ in range(50):
                producer.send("t", b"")
            closed.wait()
        """
        ended = run(program, log.path)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert rows(log) == 51

    def test_leaves_no_thread(self, log):
        with Producer(log.path) as producer:
            producer.send("t", b"")
            threads = producer._sender.threads
        assert not any(thread.is_alive() for thread in threads)

    def test_that_is_closed_in_haste_fails_what_is_left(self, log, monkeypatch):
        go, stage = threading.Event(), Sender._stage
        monkeypatch.setattr(Sender, "_stage", lambda self, request: (go.wait(GUARD), stage(self, request))[1])
        producer = Producer(log.path, linger_ms=0, batch_size=1)
        futures = [producer.send("t", b"") for _ in range(3)]
        producer.close(timeout=0.01)
        with pytest.raises(InvalidInput, match="closed before this row was written"):
            futures[-1].result(0)
        go.set()
        assert futures[0].result(GUARD).offset == 0

    def test_that_is_closed_in_haste_may_be_closed_by_the_callbacks_of_what_is_left(self, log, monkeypatch):
        go, stage, called = threading.Event(), Sender._stage, []
        monkeypatch.setattr(Sender, "_stage", lambda self, request: (go.wait(GUARD), stage(self, request))[1])
        producer = Producer(log.path, linger_ms=0, batch_size=1)
        for _ in range(3):
            producer.send("t", b"", on_delivery=lambda *_: called.append((producer.close(), producer.flush())))
        thread = threading.Thread(target=producer.close, args=(0.01,), daemon=True)
        thread.start()
        thread.join(0.5)
        go.set()
        thread.join(GUARD)
        assert not thread.is_alive()
        assert len(called) >= 2

    def test_that_is_deleted_writes_what_it_has(self, log):
        producer = Producer(log.path, linger_ms=3_600_000)
        future = producer.send("t", b"")
        del producer
        gc.collect()
        assert future.result(GUARD).offset == 0

    def test_that_is_deleted_by_its_own_thread_writes_what_it_has(self, log, monkeypatch):
        group = Accumulator._group

        def collect(self, queue):
            gc.collect()  # as any allocation may; the thread holds the lock of the rows
            return group(self, queue)

        monkeypatch.setattr(Accumulator, "_group", collect)
        gc.disable()
        try:
            cycle = [Producer(log.path, linger_ms=50)]
            cycle.append(cycle)
            threads, future = cycle[0]._sender.threads, cycle[0].send("t", b"")
            del cycle
            assert future.result(10).offset == 0
            for thread in threads:
                thread.join(10)
            assert not any(thread.is_alive() for thread in threads)
        finally:
            gc.enable()

    def test_that_is_deleted_at_the_end_of_the_program_writes_what_it_has(self, log):
        program = """
            import sys
            from pyspark_log import Producer
            def send():
                producer = Producer(sys.argv[1], linger_ms=3600000)
                producer.send("t", b"")
            send()
        """
        ended = run(program, log.path)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert rows(log) == 1

    def test_wakes_those_who_wait_for_room_when_it_is_closed(self, log, monkeypatch):
        go, stage = threading.Event(), Sender._stage
        monkeypatch.setattr(Sender, "_stage", lambda self, request: (go.wait(GUARD), stage(self, request))[1])
        producer = Producer(log.path, linger_ms=0, buffer_memory=200)
        producer.send("t", b"x" * 100)
        waiting, errors = threading.Event(), []

        def send():
            waiting.set()
            try:
                producer.send("t", b"x" * 100)
            except InvalidInput as error:
                errors.append(error.message)

        thread = threading.Thread(target=send)
        thread.start()
        waiting.wait(GUARD)
        producer.close(timeout=0.05)
        thread.join(GUARD)
        go.set()
        assert errors == ["this Producer is closed; make a new one"]

    def test_writes_everything_when_the_program_ends(self, log):
        program = """
            import sys
            from pyspark_log import Producer
            producer = Producer(sys.argv[1], linger_ms=3600000)
            for number in range(100):
                producer.send("t", b"%d" % number)
        """
        ended = run(program, log.path)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert rows(log) == 100

    def test_may_be_used_by_threads_that_outlive_the_main_one(self, log):
        program = """
            import sys, threading
            from pyspark_log import Producer
            producer = Producer(sys.argv[1], linger_ms=3600000)
            def send():
                threading.main_thread().join()
                for number in range(100):
                    producer.send("t", b"%d" % number)
            threading.Thread(target=send).start()
        """
        ended = run(program, log.path)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert rows(log) == 100

    def test_says_what_to_do_in_a_forked_process(self, log):
        with Producer(log.path, linger_ms=3_600_000) as producer:
            producer.send("t", b"of the parent")
            read, write = os.pipe()
            if (child := os.fork()) == 0:
                try:
                    producer.send("t", b"of the child")
                except InvalidInput as error:
                    os.write(write, error.message.encode())
                finally:
                    producer.close()
                    os._exit(0)
            os.waitpid(child, 0)
            assert (
                os.read(read, 1000) == b"this Producer was made before the process was forked; make one in each process"
            )
        assert rows(log) == 1

    def test_needs_neither_spark_nor_java(self, log):
        program = """
            import os, sys
            os.environ.pop("JAVA_HOME", None)
            from pyspark_log import Consumer, Producer
            with Consumer(sys.argv[1]) as consumer:
                consumer.assign(consumer.partitions("t"), "earliest")
                assert len(consumer.poll(1000)) == 1
            print(*{"pyspark", "py4j", "pandas", "typer", "rich"} & set(sys.modules))
            with Producer(sys.argv[1]) as producer:
                producer.send("t", b"a", key=b"k").result()
            print(*{"pyspark", "py4j", "typer", "rich"} & set(sys.modules))
        """
        log.append("t", {0: [b"row"]})
        ended = run(program, log.path)
        assert (ended.stdout.strip(), ended.stderr) == ("", "")


class TestAConsumer:
    def test_that_is_closed_says_so(self, log):
        consumer = Consumer(log.path)
        consumer.assign([("t", 0)])
        consumer.close()
        for call in (consumer.poll, consumer.topics, lambda: consumer.assign([("t", 0)])):
            with pytest.raises(InvalidInput, match="this Consumer is closed; make a new one"):
                call()
        assert list(consumer) == []

    def test_stops_waiting_when_another_thread_closes_it(self, log):
        consumer = Consumer(log.path)
        consumer.assign([("t", 0)])
        threading.Timer(0.05, consumer.close).start()
        assert consumer.poll(timeout_ms=GUARD * 1000) == []

    @pytest.mark.parametrize("when", ["between two rows", "before it reads"])
    def test_ends_an_iteration_when_another_thread_closes_it(self, log, when):
        def close():
            thread = threading.Thread(target=consumer.close)
            thread.start()
            thread.join(GUARD)

        class ClosedWhenRead(list):
            def __getitem__(self, place):
                close()
                return super().__getitem__(place)

        log.append("t", {0: [b"a", b"b"]})
        consumer = Consumer(log.path, group_id="g")
        consumer.assign([("t", 0)], "earliest")
        rows = [next(consumer)]
        if when == "between two rows":
            consumer._reading.ahead = ClosedWhenRead(consumer._reading.ahead)
        else:
            rows += [next(consumer)]
            read_ahead = consumer._read_ahead
            consumer._read_ahead = lambda timeout_ms: (close(), read_ahead(timeout_ms))
        rows += consumer
        assert [row.value for row in rows] == [b"a", b"b"]

    def test_is_for_one_thread_at_a_time(self, log):
        consumer, begun = Consumer(log.path), threading.Event()
        consumer.assign([("t", 0)])
        consumer._looks.found = begun.set
        look = consumer._looks.look
        consumer._looks.look = lambda handles: (begun.set(), look(handles))
        thread = threading.Thread(target=consumer.poll, args=(GUARD * 1000,))
        thread.start()
        begun.wait(GUARD)
        with pytest.raises(InvalidInput, match="in use by another thread"):
            consumer.poll()
        consumer.close()
        thread.join(GUARD)
        assert not thread.is_alive()
