"""A real Kafka broker, for tests and benchmarks: one process that is broker and controller (KRaft), on free ports.

Its data are in a folder of the caller's. It starts in about five seconds.
"""

import base64
import contextlib
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.servers import maven_jars
from tests.servers.ceph import free_port
from tests.servers.maven_jars import Unavailable

START_SECONDS = 90
SMALL_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms64m", "-Xmx512m")
"""Starts quickly. A benchmark chooses Kafka's own options."""


class Broker:
    """A broker that runs."""

    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"


@contextlib.contextmanager
def running(
    folder: Path, jvm: tuple[str, ...] = SMALL_JVM, settings: Mapping[str, object] | None = None
) -> Iterator[Broker]:
    """Start a broker, whose data are in `folder`, and stop it at the end. Raise `Unavailable` if there is none.

    `settings` are some of the broker's, instead of those here.
    """
    java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '/usr')}/bin{os.pathsep}{os.environ['PATH']}")
    if java is None:
        raise Unavailable("there is no Java")
    command = [java, *jvm, "-cp", os.pathsep.join(map(str, maven_jars.jars("kafka")))]
    folder.mkdir(parents=True, exist_ok=True)
    ports = free_port(), free_port()
    properties = folder / "server.properties"
    properties.write_text(_properties(folder, *ports, settings or {}))
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
    output = folder / "output.txt"
    with output.open("wb") as log:
        formatted = [*command, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties)]
        done = subprocess.run(formatted, stdout=log, stderr=log, check=False)
        if done.returncode != 0:
            raise Unavailable(f"its storage cannot be formatted: {output.read_text()[-1000:]}")
        process = subprocess.Popen([*command, "kafka.Kafka", str(properties)], stdout=log, stderr=log)
        try:
            _wait(process, ports[0], output)
            yield Broker(ports[0])
        finally:
            process.kill()  # nobody needs its data any more
            process.wait()


def _wait(process: "subprocess.Popen[bytes]", port: int, output: Path) -> None:
    """Wait until the broker answers."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    deadline = time.monotonic() + START_SECONDS
    client = None
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError, KafkaException):
            socket.create_connection(("127.0.0.1", port), 1).close()  # the client would wait before it tries again
            client = client or AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
            if client.list_topics(timeout=5).brokers:
                return
        time.sleep(0.1)
    raise Unavailable(f"the broker did not start within {START_SECONDS} s: {output.read_text()[-2000:]}")


def _properties(folder: Path, port: int, controller_port: int, others: Mapping[str, object]) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": folder / "data",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "log.cleaner.dedupe.buffer.size": 2 * 1024 * 1024,
        "log.cleaner.backoff.ms": 200,
    }
    return "".join(f"{name}={value}\n" for name, value in {**settings, **others}.items())
