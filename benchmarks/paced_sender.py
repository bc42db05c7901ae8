"""Send rows at a steady rate, each with the time at which it was sent; print how late each one was, in milliseconds."""

from __future__ import annotations

import sys
import time

from pyspark_log import Producer

MILLI = 1_000
STAMP = b"%020.9f"
PADDING = b"x" * 80


def main(path: str, topic: str, linger: int, rows: int, rate: int) -> None:
    late = []
    with Producer(path, linger_ms=linger) as producer:
        due = time.monotonic()
        for _ in range(rows):
            while (now := time.monotonic()) < due:
                time.sleep(due - now)
            late.append(now - due)
            producer.send(topic, STAMP % now + PADDING)
            due += 1 / rate
    print(*(f"{each * MILLI:.3f}" for each in late))


main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
