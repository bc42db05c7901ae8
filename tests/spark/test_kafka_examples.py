"""Topics move between a real Kafka broker and the log, by the examples: as one runs them, one of them is killed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pyspark_log
from tests.servers import kafka, maven_jars
from tests.servers.maven_jars import Unavailable
from tests.support.plain_log import PlainLog

confluent_kafka = pytest.importorskip("confluent_kafka")
admin = pytest.importorskip("confluent_kafka.admin")

EXAMPLES = Path(__file__).parents[2] / "examples"
NOON_MS = 1_700_000_000_000
PARTITIONS, ROWS = 2, 3000


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    try:
        maven_jars.jars("connector")
        with kafka.running(tmp_path_factory.mktemp("kafka")) as running:
            yield running.address
    except Unavailable as why:
        pytest.skip(f"there is no Kafka: {why}")


def example(name, *arguments):
    jars = ",".join(map(str, maven_jars.jars("connector")))
    environment = os.environ | {"PYSPARK_SUBMIT_ARGS": f"--jars {jars} pyspark-shell"}
    return [sys.executable, EXAMPLES / name, *map(str, arguments)], environment


def run(name, *arguments):
    command, environment = example(name, *arguments)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def create(broker, name):
    client = admin.AdminClient({"bootstrap.servers": broker, "log_level": 0})
    client.create_topics([admin.NewTopic(name, PARTITIONS, 1, config={"retention.ms": "-1"})])[name].result(30)


def produce(broker, name, numbers):
    producer = confluent_kafka.Producer({"bootstrap.servers": broker, "enable.idempotence": True, "log_level": 0})
    for number in numbers:
        row = {"partition": number % PARTITIONS, "timestamp": NOON_MS + number, "headers": [("n", b"%d" % number)]}
        producer.produce(name, b"%d" % number, b"key" if number % 3 else None, **row)
    assert producer.flush(30) == 0


def expected(number):
    key = b"key" if number % 3 else None
    return key, b"%d" % number, NOON_MS + number, {"n": b"%d" % number}


def rows_of(log, name):
    """Return key, value, time and headers of the rows of each partition, in their order."""
    found = [[] for _ in range(PARTITIONS)]
    for row in pyspark_log.scan(log, name, options={"includeHeaders": "true"}).to_reader().read_all().to_pylist():
        headers = {each["key"]: each["value"] for each in row["headers"]}
        found[row["partition"]].append((row["key"], row["value"], row["timestamp"].timestamp() * 1000, headers))
    return found


def in_kafka(broker, name, rows):
    """Return partition, key, value and headers of the rows of a topic, once there are so many."""
    settings = {"bootstrap.servers": broker, "group.id": "reader", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([name])
    found = []
    while len(found) < rows:
        found += [(each.partition(), each.key(), each.value(), each.headers()) for each in consumer.consume(rows, 1)]
    consumer.close()
    return found


@pytest.mark.slow
def test_each_row_comes_from_kafka_once_with_its_partition_time_and_headers_though_a_copy_is_killed(broker, tmp_path):
    log, checkpoint = str(tmp_path / "log"), str(tmp_path / "checkpoint")
    PlainLog(log).create("flights", PARTITIONS)
    create(broker, "flights")
    produce(broker, "flights", range(ROWS))
    command, environment = example("from_kafka.py", broker, "flights", log, checkpoint, 100)
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as copy:
        while copy.poll() is None and not any(rows_of(log, "flights")):
            time.sleep(0.05)
        copy.kill()
    assert 0 < sum(map(len, rows_of(log, "flights"))) < ROWS, "it was killed in the middle"
    produce(broker, "flights", range(ROWS, ROWS + 10))
    run("from_kafka.py", broker, "flights", log, checkpoint)
    run("from_kafka.py", broker, "flights", log, checkpoint)
    wanted = [[expected(number) for number in range(each, ROWS + 10, PARTITIONS)] for each in range(PARTITIONS)]
    assert rows_of(log, "flights") == wanted


@pytest.mark.slow
def test_each_row_comes_to_kafka_with_its_partition_headers_and_offset(broker, tmp_path):
    log, checkpoint = str(tmp_path / "log"), str(tmp_path / "checkpoint")
    topic = PlainLog(log)
    topic.create("back", PARTITIONS)
    create(broker, "back")
    topic.append("back", {0: [b"a", b"b"], 1: [b"c"]})
    run("to_kafka.py", log, "back", broker, checkpoint)
    topic.append("back", {1: [b"d"]})
    run("to_kafka.py", log, "back", broker, checkpoint)
    rows = [(0, b"a", b"0"), (0, b"b", b"1"), (1, b"c", b"0"), (1, b"d", b"1")]
    wanted = [(partition, None, value, [("offset", offset)]) for partition, value, offset in rows]
    assert sorted(in_kafka(broker, "back", len(rows)), key=str) == wanted
