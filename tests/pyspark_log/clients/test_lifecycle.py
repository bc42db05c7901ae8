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
from pyspark_log.clients.sender import Sender
from pyspark_log_storage.errors import InvalidInput
from tests.support.bare_venv import environment_with_pandas
from tests.support.plain_log import PlainLog

ROOT = Path(__file__).parents[3]
GUARD = 60


@pytest.fixture
def log(tmp_path):
    made = PlainLog(tmp_path)
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
        threads = producer._sender.threads
        producer.close()
        assert rows(log) == 1
        assert not any(thread.is_alive() for thread in threads)
        for call in (
            lambda: producer.send("t", b""),
            lambda: producer.send_batch("t", None),
            lambda: producer.partitions_for("t"),
        ):
            with pytest.raises(InvalidInput, match="this Producer is closed; make a new one"):
                call()
        producer.close()
        assert producer.flush() == 0

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

    def test_that_is_deleted_writes_what_it_has(self, log):
        producer = Producer(log.path, linger_ms=3_600_000)
        future = producer.send("t", b"")
        del producer
        gc.collect()
        assert future.result(GUARD).offset == 0

    @pytest.mark.deep
    @pytest.mark.parametrize("thread", ["the main one", "another that outlives it"])
    def test_writes_everything_when_the_program_ends(self, log, thread):
        program = """
            import sys, threading
            from pyspark_log import Producer
            producer = Producer(sys.argv[1], linger_ms=3600000)
            def send():
                if sys.argv[2] != "the main one":
                    threading.main_thread().join()
                for number in range(100):
                    producer.send("t", b"%d" % number)
            send() if sys.argv[2] == "the main one" else threading.Thread(target=send).start()
        """
        ended = run(program, log.path, thread)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert rows(log) == 100

    @pytest.mark.deep
    def test_that_is_used_by_a_function_of_atexit_says_that_this_is_too_late(self, log):
        program = """
            import atexit, sys
            from pyspark_log import LogError, Producer
            producer = Producer(sys.argv[1])
            producer.send("t", b"")
            @atexit.register
            def late():
                for call in (lambda: producer.send("t", b"late"), lambda: Producer(sys.argv[1])):
                    try:
                        call()
                    except LogError as error:
                        print(error)
        """
        ended = run(program, log.path)
        assert ended.stderr == ""
        assert ended.stdout.count("the program has ended, so nothing can be sent any more: functions of atexit") == 2
        assert rows(log) == 1

    @pytest.mark.deep
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


class TestAConsumer:
    def test_stops_waiting_when_another_thread_closes_it(self, log):
        consumer = Consumer(log.path)
        consumer.assign([("t", 0)])
        threading.Timer(0.05, consumer.close).start()
        assert consumer.poll(timeout_ms=GUARD * 1000) == []

    def test_is_for_one_thread_at_a_time(self, log):
        consumer, begun = Consumer(log.path), threading.Event()
        consumer.assign([("t", 0)])
        poll = consumer._poller.poll
        consumer._poller.poll = lambda handles: (begun.set(), poll(handles))
        thread = threading.Thread(target=consumer.poll, args=(GUARD * 1000,))
        thread.start()
        begun.wait(GUARD)
        with pytest.raises(InvalidInput, match="in use by another thread"):
            consumer.poll()
        consumer.close()
        thread.join(GUARD)
        assert not thread.is_alive()
