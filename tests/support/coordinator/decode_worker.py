"""A process that starts others, in each of which many threads decode what is stored, all at once.

    python -m tests.support.coordinator.decode_worker <root> <starts>

Prints how each of them ended. Their threads take turns after every few instructions, and each has a log of its own.
"""

import os
import sys
import threading

from pyspark_log.opening import own_log
from pyspark_log_coordinator.log import topic_description
from pyspark_log_coordinator.log.log import Log

THREADS = 32


def read_all(log: Log, ready: threading.Barrier, done: list[int]) -> None:
    ready.wait()
    log.open(create=False)
    handle = log.topic("t")
    key = next(each for each in log.store.list("topics/t/") if each.endswith(topic_description.NAME))
    topic_description.decode(log.store.read(key), key)
    done.append(handle.journal.number)


def read_in_threads(root: str) -> int:
    """Return 0 if every thread got to its end."""
    sys.setswitchinterval(1e-6)
    ready, done = threading.Barrier(THREADS), list[int]()
    threads = [threading.Thread(target=read_all, args=(own_log(root), ready, done)) for _ in range(THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return 0 if len(done) == THREADS else 1


if __name__ == "__main__":
    for _ in range(int(sys.argv[2])):
        child = os.fork()  # before anything was decoded: so each child is as a process that has just started
        if child == 0:
            os._exit(read_in_threads(sys.argv[1]))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
