"""Send rows at a steady rate, each with the time at which it was sent; print how late each one was, in milliseconds.

With a sixth argument, write the times of the steps of each batch into that file (`benchmarks.send_to_poll`).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

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


if sys.argv[6:]:
    from benchmarks.send_to_poll import Stamps

    stamps = Stamps()
    stamps.of_producer()
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))
    Path(sys.argv[6]).write_text(json.dumps(stamps.times))
else:
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
