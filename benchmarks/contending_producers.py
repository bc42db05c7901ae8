"""Many Producers of one process: each sends one row, waits until it is in the log, and sends the next.

Prints `ready` when all have sent their first row, and starts when a line is read. Prints the latencies of the rows that
were acknowledged in time, in milliseconds, and the seconds of processor time, as JSON. The last argument is how many
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


def main(path: str, topic: str, producers: int, seconds: float, slower: float) -> None:
    if slower > 0:
        slow_down(slower)
    threading.stack_size(256 * 1024)
    latencies: list[float] = []
    ready = threading.Semaphore(0)
    begin = threading.Event()

    def send_rows() -> None:
        with Producer(path, buffer_memory=1 << 20, delivery_timeout_ms=600_000) as producer:
            producer.send(topic, VALUE).result()
            ready.release()
            begin.wait()
            deadline = time.monotonic() + seconds
            while (sent := time.monotonic()) < deadline:
                producer.send(topic, VALUE).result()
                if (now := time.monotonic()) < deadline:
                    latencies.append((now - sent) * MILLI)

    threads = [threading.Thread(target=send_rows) for _ in range(producers)]
    for thread in threads:
        thread.start()
    for _ in threads:
        ready.acquire()
    print("ready", flush=True)
    sys.stdin.readline()
    cpu = time.process_time()
    begin.set()
    for thread in threads:
        thread.join()
    print(json.dumps([latencies, time.process_time() - cpu]))


main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]))
