"""The least rights of each role, as docs/guides/object-store-credentials.md lists them: bucket policies on Ceph."""

import json
import uuid

import pytest

from pyspark_log import Consumer, Producer
from pyspark_log.opening import open_log, own_log
from pyspark_log_coordinator.commit.inline_maintenance import clean_up
from pyspark_log_storage.errors import StoreRefused
from pyspark_log_storage.stores.bucket import BucketStore
from pyspark_log_storage.stores.storage_options import StorageOptions
from tests.servers import ceph as ceph_server

pytestmark = pytest.mark.deep
LIST = (["ListBucket"], "")
READER = [LIST, (["GetObject"], "cluster/*"), (["GetObject"], "node"), (["GetObject"], "topics/{topic}/*")]
MEMBER = [*READER, (["GetObject", "PutObject", "DeleteObject"], "groups/*")]
PRODUCER = [*READER, (["PutObject", "AbortMultipartUpload"], "topics/{topic}/*")]
MAINTENANCE = [
    *PRODUCER,
    (["PutObject"], "cluster/*"),
    (["DeleteObject"], "topics/{topic}/*"),
    (["ListBucketMultipartUploads"], ""),
]
ADMIN = [LIST, (["ListBucketMultipartUploads"], ""), (["GetObject", "PutObject", "DeleteObject"], "*")]


class Guarded:
    """A log in a bucket of its own, in which the guest has the rights that a test grants."""

    def __init__(self, server):
        self.server = server
        self.bucket = server.new_bucket()
        self.url = f"s3://{self.bucket}/{uuid.uuid4().hex}"
        key, secret = ceph_server.GUEST
        self.guest = {"key": key, "secret": secret, "endpoint_url": server.endpoint}
        open_log(self.url, StorageOptions.given(server.options), create=True)
        with Producer(self.url, storage_options=server.options) as producer:
            for topic in ("mine", "other"):
                producer.send(topic, b"first").result()

    def grant(self, rights, topic="mine"):
        arn = f"arn:aws:s3:::{self.bucket}"
        root = self.url.rpartition("/")[2]
        statements = [
            {
                "Effect": "Allow",
                "Principal": {"AWS": ["arn:aws:iam:::user/guest"]},
                "Action": [f"s3:{action}" for action in actions],
                "Resource": [f"{arn}/{root}/{place.format(topic=topic)}" if place else arn],
            }
            for actions, place in rights
        ]
        policy = {"Version": "2012-10-17", "Statement": statements}
        self.server.client().put_bucket_policy(Bucket=self.bucket, Policy=json.dumps(policy))

    def read(self, topic="mine", **options):
        with Consumer(self.url, storage_options=self.guest, **options) as consumer:
            consumer.assign(consumer.partitions(topic), "earliest")
            return [record.value for record in consumer.poll(timeout_ms=10_000)]

    def write(self, topic="mine"):
        with Producer(self.url, storage_options=self.guest, retries=0) as producer:
            producer.send(topic, b"second").result()

    def log(self):
        log = own_log(self.url, StorageOptions.given(self.guest))
        log.open(create=False)
        return log


@pytest.fixture(scope="module")
def guarded(ceph):
    return Guarded(ceph)


def test_a_reader_of_one_topic_cannot_read_another_or_write(guarded):
    guarded.grant(READER)
    assert guarded.read()[0] == b"first"
    with pytest.raises(StoreRefused, match="s3:GetObject"):
        guarded.read("other")
    with pytest.raises(StoreRefused, match="s3:PutObject"):
        guarded.write()


@pytest.mark.parametrize("without", range(len(READER)))
def test_a_reader_needs_each_of_its_rights(guarded, without):
    guarded.grant([right for number, right in enumerate(READER) if number != without])
    with pytest.raises(StoreRefused, match="grant s3:"):
        guarded.read()


def test_a_producer_writes_its_topic_and_no_other(guarded):
    guarded.grant(PRODUCER)
    guarded.write()
    assert guarded.read()[-1] == b"second"
    with pytest.raises(StoreRefused, match=r"s3:(Get|Put)Object"):
        guarded.write("other")


def test_a_member_of_a_group_commits_offsets(guarded):
    log = own_log(guarded.url, StorageOptions.given(guarded.server.options))
    log.open(create=False)
    log.group("readers", create=True)
    guarded.grant(MEMBER)
    options = {"group_id": "readers", "auto_offset_reset": "earliest"}
    with Consumer(guarded.url, storage_options=guarded.guest, **options) as consumer:
        consumer.subscribe(["mine"])
        found = []
        while not found:
            found = consumer.poll(timeout_ms=1000)
        consumer.commit()
        assert [consumer.committed(each).offset for each in consumer.assignment()] == [len(found)]


def test_maintenance_deletes_in_its_topic(guarded):
    guarded.grant(MAINTENANCE)
    log = guarded.log()
    handle = log.topic("mine")
    clean_up(handle, handle.journal.number)
    store = BucketStore(guarded.url, StorageOptions.given(guarded.guest))
    assert list(store.delete_unfinished()) == []
    store.delete("topics/mine/nothing")
    with pytest.raises(StoreRefused, match="s3:DeleteObject"):
        store.delete("topics/other/nothing")


def test_an_admin_makes_and_deletes_topics(guarded):
    guarded.grant(ADMIN)
    log = guarded.log()
    log.create_topic("new", 2)
    log.delete_topic("new")
    assert sorted(log.topics()) == ["mine", "other"]
