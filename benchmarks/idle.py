"""What idle clients cost in a bucket: their requests in a minute without rows, counted at moto's server.

All clients wait at the same time, each in a cluster of its own, so that the counters of its address are its own.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn

from benchmarks.report import Line, at_most
from pyspark_log.cli.nodes import node_run
from pyspark_log.clients.consumer import Consumer
from pyspark_log.clients.producer import Producer
from pyspark_log.opening import own_log
from pyspark_log_storage.stores.request_counts import counts_of
from pyspark_log_storage.stores.storage_options import ENVIRONMENT_VARIABLE, StorageOptions
from tests.servers.running import Server
from tests.support.direct import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

QUIET_SECONDS, COUNTED_SECONDS = 220.0, 60.0
"""How long the clients are idle before their requests are counted, and how long these are counted."""
POLLING_SECONDS = 0.01
"""Spark's spark.sql.streaming.pollingDelay."""
TRIGGER_SECONDS = 10.0
MINUTES = 30 * 24 * 60
"""Of a month."""
DOLLARS = {"put_object": 5e-6, "list_objects": 5e-6, "list_multipart_uploads": 5e-6}
DOLLARS_OF_A_READ = 0.4e-6
FREE = frozenset({"delete_object", "abort_multipart_upload"})
REQUESTS_TARGET = 30
WITHOUT_TARGET = frozenset({"node run NODE, two nodes"})
"""It probes nodes and topics twice in replica.lag.time.max.ms."""


def measure_idle(log: Callable[[str], object], quiet: float = QUIET_SECONDS) -> list[Line]:
    """Return two lines for each idle client: its requests in a minute, and what a month of them costs."""
    log(f"idle clients: {quiet:.0f} s, then counted for {COUNTED_SECONDS:.0f} s")
    # The commands run until their process ends.
    command = [sys.executable, "-m", "benchmarks.idle", str(quiet)]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    lines = []
    for name, numbers in found.items():
        shown = ", ".join(f"{number:.0f} {operation}" for operation, number in sorted(numbers.items()))
        target = None if name in WITHOUT_TARGET else at_most(REQUESTS_TARGET, "requests")
        lines.append(Line(f"idle in S3: {name}", "requests", sum(numbers.values()), target=target, note=shown))
        lines.append(Line(f"  dollars in a month: {name}", "dollars", dollars(numbers), detail=True))
    return lines


def _count(quiet: float) -> dict[str, dict[str, float]]:
    """Return the requests of each client in a minute, after `quiet` seconds, by operation."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # it logs each request
    served = ThreadedMotoServer(port=0, verbose=False)
    served.start()
    host, port = served.get_host_and_port()
    server = Server(f"http://{host}:{port}", "moto", "moto")
    os.environ[ENVIRONMENT_VARIABLE] = json.dumps(server.options)  # for the commands
    clients = _Clients(server)
    clients.start()
    time.sleep(quiet)
    return clients.counted()


def dollars(numbers: dict[str, float]) -> float:
    """Return what these requests in each minute cost in a month, by S3 Standard's prices."""
    return MINUTES * sum(
        0.0 if name in FREE else number * DOLLARS.get(name, DOLLARS_OF_A_READ) for name, number in numbers.items()
    )


class _Clients:
    """The clients, each with a thread and a cluster."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._bucket = server.new_bucket()
        self._urls: dict[str, list[str]] = {}

    def start(self) -> None:
        self._add("Consumer", self._consume)
        self._add("Consumer in a group", lambda url: self._consume(url, group_id="g"))
        two = self._cluster("Consumer in a group, one of two", 1)
        for _ in range(2):
            self._run(lambda: self._consume(two, group_id="g"))
        self._add("Producer", self._produce)
        self._add("stream without a trigger", lambda url: self._stream(url, POLLING_SECONDS))
        self._add("stream, trigger of 10 s", lambda url: self._stream(url, TRIGGER_SECONDS))
        self._add("node run", node_run.run)
        self._add("node run, four topics", node_run.run, topics=4)
        nodes = self._cluster("node run NODE, two nodes", 1, nodes=2)
        self._run(lambda: node_run.run(nodes, "1"))

    def counted(self) -> dict[str, dict[str, float]]:
        """Return the requests of each client in a minute, by operation."""
        for urls in self._urls.values():
            for url in urls:
                counts_of(url).clear()
        began = time.monotonic()
        time.sleep(COUNTED_SECONDS)
        minutes = (time.monotonic() - began) / 60
        found: dict[str, dict[str, float]] = {}
        for name, urls in self._urls.items():
            share = 2 if name.endswith("one of two") else 1
            numbers = found[name] = {}
            for url in urls:
                for operation, each in counts_of(url).items():
                    numbers[operation] = numbers.get(operation, 0.0) + each.number / minutes / share
        return found

    def _cluster(self, name: str, topics: int, nodes: int = 1) -> str:
        """Create a cluster, and return its address."""
        from pyspark_log_coordinator.log.node_admin import join

        url = f"s3://{self._bucket}/{len(self._urls)}"
        log = own_log(url, self._options)
        log.open(create=True)
        self._urls[name] = [url]
        for number in range(2, nodes + 1):
            self._urls[name].append(f"{url}-node-{number}")
            join(log, self._urls[name][-1])
        for number in range(topics):
            log.create_topic(f"t{number}", 8, replication_factor=nodes)
        with Producer(url, storage_options=self._server.options) as producer:
            for number in range(topics):
                producer.send(f"t{number}", b"row")
        return url

    def _add(self, name: str, act: Callable[[str], object], topics: int = 1) -> None:
        url = self._cluster(name, topics)
        self._run(lambda: act(url))

    def _run(self, act: Callable[[], object]) -> None:
        threading.Thread(target=act, daemon=True).start()

    @property
    def _options(self) -> StorageOptions:
        return StorageOptions.given(self._server.options)

    def _consume(self, url: str, **options: Any) -> NoReturn:
        with Consumer(url, storage_options=self._server.options, **options) as consumer:
            if options:
                consumer.subscribe(["t0"])
            else:
                consumer.assign(consumer.partitions("t0"), "earliest")
            while True:
                consumer.poll(timeout_ms=1000)

    def _produce(self, url: str) -> NoReturn:
        producer = Producer(url, storage_options=self._server.options)
        producer.send("t0", b"row")
        while True:
            time.sleep(COUNTED_SECONDS)

    def _stream(self, url: str, pause: float, **options: Any) -> NoReturn:
        storage = json.dumps(self._server.options)
        stream = Stream(url, subscribe="t0", startingOffsets="earliest", storage_options=storage, **options)
        while True:
            stream.batch()
            time.sleep(pause)


if __name__ == "__main__":
    print(json.dumps(_count(float(sys.argv[1]))), flush=True)
    os._exit(0)
