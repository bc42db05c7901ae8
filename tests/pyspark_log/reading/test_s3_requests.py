"""How many requests a micro-batch makes of a log in S3. What reading costs is in `source/test_idle_streams.py`."""

import json
import uuid

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_log.opening import forget_logs, open_log
from pyspark_log_storage.stores.request_counts import counts_of
from pyspark_log_storage.stores.storage_options import StorageOptions
from tests.support.direct import source

SCHEMA = StructType([StructField("value", BinaryType())])
PARTITIONS = 32
pytestmark = pytest.mark.deep


class CloudTopic:
    """A topic in S3, written and read as Spark does it, but without Spark.

    Spark plans a batch in one process and commits it in another. Here each has a log of its own: their options differ.
    """

    def __init__(self, server, bucket):
        self.url = f"s3://{bucket}/{uuid.uuid4().hex}"
        self.options = StorageOptions.given(server.options)
        self.text = {"storage_options": json.dumps(server.options)}
        self.text_of_committer = {"storage_options": json.dumps({**server.options, "requester_pays": False})}
        forget_logs()
        creator = StorageOptions.given({**server.options, "use_ssl": False})
        open_log(self.url, creator, create=True).create_topic("t", PARTITIONS)
        self.log = open_log(self.url, self.options)
        self.batches = 0

    def write(self, tasks):
        context = TaskContext._getOrCreate()
        ids = {"sql.streaming.queryId": "query", "spark.jobGroup.id": "run"}
        context._localProperties = {**ids, "streaming.sql.batchId": str(self.batches)}
        writer = source(self.url, topic="t", **self.text).streamWriter(SCHEMA, overwrite=False)
        messages = []
        for task in range(tasks):
            context._partitionId = task
            rows = pa.RecordBatch.from_pydict({"value": [b"%d" % row for row in range(1000)]})
            messages.append(writer.write(iter([rows])))
        committer = source(self.url, topic="t", **self.text_of_committer)
        committer.streamWriter(SCHEMA, overwrite=False).commit(messages, self.batches)
        self.batches += 1

    def requests(self):
        """Return the number of PUTs, of lists and of others since the last call."""
        counts = counts_of(self.url)
        found = {name: each.number for name, each in counts.items()}
        counts.clear()
        puts, lists = (found.pop(name, 0) for name in ("put_object", "list_objects"))
        return puts, lists, sum(found.values())


@pytest.fixture
def topic(ceph, ceph_bucket, monkeypatch):
    monkeypatch.setattr("pyspark_log_coordinator.log.log.MARKER_SECONDS", 3600)  # else it depends on the time
    return CloudTopic(ceph, ceph_bucket)


@pytest.mark.parametrize("tasks", [1, 5])
def test_a_micro_batch_costs_a_put_for_each_task_and_one_and_two_lists_and_the_read_of_the_entry_before(topic, tasks):
    topic.write(tasks)
    topic.requests()
    for _ in range(3):
        topic.write(tasks)
        assert topic.requests() == (tasks + 1, 2, 1)
