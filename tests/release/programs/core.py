"""Without extras: the command line and the clients write and read."""

import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark_log import Consumer, Producer

log = f"{tempfile.mkdtemp()}/log"
command = Path(sys.executable).with_name("pyspark-log")
subprocess.run([command, "topics", "create", "cities", "--partitions", "2", "--path", log], check=True)
with Producer(log) as producer:
    producer.send("cities", b"Graz", key=b"at").result()
with Consumer(log, auto_offset_reset="earliest") as consumer:
    consumer.assign(consumer.partitions("cities"))
    assert [record.value for record in consumer.poll(timeout_ms=5000)] == [b"Graz"]
shown = subprocess.run([command, "topics", "describe", "cities", "--path", log], check=True, stdout=subprocess.PIPE)
assert b"cities" in shown.stdout
