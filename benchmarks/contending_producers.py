"""Many Producers of one process: each sends one row, waits until it is in the log, and sends the next.

Prints `ready` when all have sent their first row, and starts when a line is read. After a warm-up, in which each
producer comes to know the others, it measures, and prints as JSON: the latencies of the rows that were acknowledged
meanwhile, in milliseconds, the seconds of processor time, and how many seconds that took. The last argument is how many
seconds each request to the store takes longer.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from benchmarks.slow_store import slow_down
from pyspark_log import Producer

MILLI = 1_000
VALUE = b"x" * 100


def main(path: str, topic: str, producers: int, warm_up: float, seconds: float, slower: float) -> None:
    if slower > 0:
        slow_down(slower)
    threading.stack_size(256 * 1024)
    acknowledged: list[tuple[float, float]] = []
    ready = threading.Semaphore(0)
    begin, end = threading.Event(), threading.Event()

    def send_rows() -> None:
        with Producer(path, buffer_memory=1 << 20, delivery_timeout_ms=600_000) as producer:
            producer.send(topic, VALUE).result()
            ready.release()
            begin.wait()
            while not end.is_set():
                sent = time.monotonic()
                producer.send(topic, VALUE).result()
                acknowledged.append((now := time.monotonic(), now - sent))

    threads = [threading.Thread(target=send_rows) for _ in range(producers)]
    for thread in threads:
        thread.start()
    for _ in threads:
        ready.acquire()
    print("ready", flush=True)
    sys.stdin.readline()
    begin.set()
    time.sleep(warm_up)
    began, cpu_before = time.monotonic(), time.process_time()
    time.sleep(seconds)
    ended, cpu_after = time.monotonic(), time.process_time()
    end.set()
    for thread in threads:
        thread.join()
    latencies = [latency * MILLI for at, latency in acknowledged if began <= at < ended]
    print(json.dumps([latencies, cpu_after - cpu_before, ended - began]))


main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *map(float, sys.argv[4:]))
