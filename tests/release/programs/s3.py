"""With the extra `s3`: the clients write and read in the bucket of the server that the environment names."""

import sys

from pyspark_log import Consumer, Producer
from pyspark_log.cli.main import app

log = f"{sys.argv[1]}/log"
app(["topics", "create", "cities", "--path", log], standalone_mode=False)
with Producer(log) as producer:
    producer.send("cities", b"Graz", key=b"at").result()
with Consumer(log, auto_offset_reset="earliest") as consumer:
    consumer.assign(consumer.partitions("cities"))
    assert [record.value for record in consumer.poll(timeout_ms=5000)] == [b"Graz"]
