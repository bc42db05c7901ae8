"""Named tasks shared by three workers: one leaves, its tasks wait for it to return, and then the others get them.

    python examples/worker_pool.py /tmp/pool

The workers would be processes on three machines; here they are threads, and the wait is two seconds instead of five
minutes. There is no Spark in it.
"""

import sys
import threading
import time

from pyspark_log import TaskRunner, Worker
from pyspark_log.cli.main import app

TASKS = [f"table-{number}" for number in range(6)]


class Copies(TaskRunner):
    def __init__(self, name):
        self.name = name

    def start(self, tasks):
        print(f"{self.name} starts {', '.join(tasks)}", flush=True)

    def stop(self, tasks):
        print(f"{self.name} stops {', '.join(tasks)}", flush=True)


def wait_until(holds):
    deadline = time.monotonic() + 60
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit("the workers did not get there in a minute")
        time.sleep(0.05)


def main(path):
    app(["topics", "create", "copied", "--path", path], standalone_mode=False)  # creates the log
    workers = []
    for name in ("ada", "bob", "cyd"):
        options = {"client.id": name, "heartbeat.interval.ms": 200, "scheduled.rebalance.max.delay.ms": 2000}
        workers.append(Worker(path, "copies", TASKS, Copies(name), options))
        threading.Thread(target=workers[-1].run).start()
    wait_until(lambda: [len(each.tasks) for each in workers] == [2, 2, 2])
    print("each of the three runs two tasks", flush=True)
    workers[2].close()
    wait_until(lambda: [len(each.tasks) for each in workers] == [3, 3, 0])
    print("after the wait, each of the two others runs three", flush=True)
    for each in workers[:2]:
        each.close()


if __name__ == "__main__":
    main(sys.argv[1])
