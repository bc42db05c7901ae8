"""The store in a bucket of S3, and with other implementations of fsspec: what the contract does not say."""

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import uuid
from concurrent.futures import Future
from unittest import mock

import pytest
from fsspec.registry import _registry

from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    InvalidOption,
    LogError,
    ObjectMissing,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    StoreUnfit,
)
from pyspark_log_storage.stores import bucket, file_system
from pyspark_log_storage.stores.addresses import absolute_url, open_store
from pyspark_log_storage.stores.bucket import BucketStore
from pyspark_log_storage.stores.file_system import Head, Occupied
from pyspark_log_storage.stores.request_counts import Requests, counts_of
from pyspark_log_storage.stores.s3 import S3
from pyspark_log_storage.stores.storage_options import StorageOptions
from tests.servers.broken_link import BrokenLink
from tests.support import fsspec_kinds
from tests.support.log_reader import read_topic
from tests.support.plain_log import PlainLog
from tests.support.rings import deep

SECRET = "canary-4711"
BUSY = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 36\r\n\r\n<Error><Code>SlowDown</Code></Error>"
EXPIRED = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 40\r\n\r\n<Error><Code>ExpiredToken</Code></Error>"
CONFLICT = b"HTTP/1.1 409 Conflict\r\nContent-Length: 54\r\n\r\n<Error><Code>ConditionalRequestConflict</Code></Error>"


def new(scheme, **options):
    """Return a store that is in this process, of a kind in tests/support/fsspec_kinds.py."""
    return open_store(f"{scheme}://{uuid.uuid4().hex}/log", StorageOptions.given(options))


@pytest.fixture(params=["moto", deep("ceph")])
def server(request):
    return request.getfixturevalue(request.param)


def at(server):
    """Return a store in a new bucket of a server."""
    return BucketStore(f"s3://{server.new_bucket()}/{uuid.uuid4().hex}", StorageOptions.given(server.options))


@pytest.fixture
def store(server):
    return at(server)


@pytest.fixture(params=["once", "moto", deep("ceph")])
def each_store(request):
    return new("once") if request.param == "once" else at(request.getfixturevalue(request.param))


@pytest.fixture
def link(server):
    made = BrokenLink(server.endpoint)
    yield made
    made.close()


@pytest.fixture
def behind_link(server, link, store):
    """The same store behind the link."""
    return BucketStore(store.url, StorageOptions.given({**server.options, "endpoint_url": link.endpoint}))


class Scripted(BucketStore):
    """A store whose server does what a test says: `answer` has the answer to each operation, or an error."""

    def __init__(self, url="s3://bucket/log", **answer):
        super().__init__(url, StorageOptions.given({"key": "k", "secret": "s", "endpoint_url": "http://127.0.0.1:1"}))
        self.answer, self.calls = answer, []

    def start(self, operation, key, *arguments, sent=0, received=0, **options):
        self.calls.append((operation, arguments, options))
        found, done = self.answer.get(operation), Future()
        found = found(*arguments, **options) if callable(found) else found
        if isinstance(found, Exception):
            done.set_exception(found)
        else:
            done.set_result(found)
        return done


class Pages(S3):
    """A server that lists keys in the order in which it has them, three at once."""

    def __init__(self, keys):
        self.keys, self.begun = keys, []

    async def _send(self, method, path, name, **given):
        begin = int(given.get("ContinuationToken", 0))
        self.begun.append(given.get("StartAfter", ""))
        there = [key for key in self.keys if f"log/{key}" > self.begun[-1]]
        more = {"IsTruncated": begin + 3 < len(there), "NextContinuationToken": str(begin + 3)}
        return more | {"Contents": [{"Key": f"log/{key}"} for key in there[begin : begin + 3]]}


@pytest.mark.parametrize(("bucket", "keys"), [("bucket", "abcdef"), ("bucket--eun1-az1--x-s3", "fcadbe")])
def test_a_list_has_the_keys_of_all_pages_in_order_also_if_the_bucket_lists_in_none(bucket, keys):
    server = Pages(keys)

    def listed(after, more, *, folders):
        return asyncio.run(server.list_objects(f"{bucket}/log/", after, more, folders=folders))

    assert list(Scripted(f"s3://{bucket}/log", list_objects=listed).list("", "a")) == ["b", "c", "d", "e", "f"]
    assert set(server.begun) == {"log/a" if bucket == "bucket" else ""}, "a directory bucket cannot begin after a key"


UPLOADED = {"create_multipart_upload": "1", "upload_part": "etag"}


def test_the_parts_of_a_large_object_grow_because_their_number_is_limited(monkeypatch):
    monkeypatch.setattr(bucket, "PART_BYTES", 10)
    monkeypatch.setattr(bucket, "PARTS_OF_ONE_SIZE", 2)
    store = Scripted(**UPLOADED)
    writer = store.open_write("a")
    writer.write(bytes(10 + 10 + 20 + 20 + 30 + 1))
    assert [len(given[-1]) for operation, given, _ in store.calls if operation == "upload_part"] == [10, 10, 20, 20, 30]


@pytest.mark.parametrize("there", [False, True])
def test_a_large_object_replaces_no_other_on_a_server_that_knows_no_condition(monkeypatch, there):
    monkeypatch.setattr(bucket, "PART_BYTES", 10)

    def completed(*_, create):
        return StoreUnfit("s3://bucket", "a", "it knows no condition") if create else None

    head = Head(1, 0) if there else ObjectMissing("s3://bucket", "a")
    store = Scripted(**UPLOADED, complete_multipart_upload=completed, head_object=head)
    writer = store.open_write("a")
    writer.write(bytes(25))
    with pytest.raises(StoreError, match="already exists") if there else contextlib.nullcontext():
        writer.close()
    operations = [operation for operation, *_ in store.calls]
    assert operations.count("complete_multipart_upload") == (0 if there else 2)
    assert operations.count("abort_multipart_upload") == int(there), "no parts stay behind"


@pytest.mark.parametrize("replace", [False, True])
def test_an_upload_that_the_server_has_ended_must_be_written_again(monkeypatch, replace):
    monkeypatch.setattr(bucket, "PART_BYTES", 10)
    missing = ObjectMissing("s3://bucket", "a")
    for ended in ({"upload_part": missing}, {"complete_multipart_upload": missing}):
        store = Scripted(**{**UPLOADED, "head_object": missing, **ended})
        writer = store.open_write("a", replace=replace)
        writer.write(bytes(25))
        with pytest.raises(StoreUnavailable, match=r"ended the upload of a.*write it again"):
            writer.close()
        assert [operation for operation, *_ in store.calls][-1] == "abort_multipart_upload"


def test_requests_are_counted_with_their_bytes(each_store):
    each_store.create("a/b", b"12345")
    assert each_store.read("a/b", 1, 3) == b"234"
    assert not each_store.exists("a/c")
    assert list(each_store.list("")) == ["a/b"]
    each_store.delete("a/b")
    once = Requests(1, 0, 0)
    assert counts_of(each_store.url) == {
        "put_object": Requests(1, 5, 0),
        "get_object": Requests(1, 0, 3),
        "head_object": once,
        "list_objects": once,
        "delete_object": once,
    }


def test_a_create_whose_answer_was_lost_or_in_conflict_is_repeated_and_knows_its_own_object(store, behind_link, link):
    link.losses = 1
    assert behind_link.create("a/b", b"mine") is True
    assert [each.split()[0] for each in link.requests] == ["PUT", "PUT", "HEAD"]
    assert store.read("a/b") == b"mine"
    link.instead = CONFLICT
    assert behind_link.create("a/c", b"mine") is True
    store.create("a/d", b"same bytes")
    link.losses = 1
    assert behind_link.create("a/d", b"same bytes") is False, "it is another's"
    link.instead = CONFLICT
    assert behind_link.create("a/d", b"same bytes") is False
    assert [each.split()[0] for each in link.requests[-3:]] == ["PUT", "PUT", "HEAD"]
    link.losses = 1
    with pytest.raises(ObjectMissing):
        behind_link.read("a/missing")


def test_a_create_that_is_refused_after_an_answer_was_lost_stays_in_doubt(monkeypatch):
    """Any other error than a retriable one says that nothing was written."""
    store, errors = new("fails"), [ConnectionResetError(), PermissionError()]

    def fail(_, path):
        if len(errors) == 2:
            fsspec_kinds.Once().pipe_file(path, b"mine")
        if errors:
            raise errors.pop(0)

    monkeypatch.setattr(fsspec_kinds.Fails, "fail", fail)
    with pytest.raises(StoreUnavailable, match=r"no right to do this.*may have written a/b"):
        store.create("a/b", b"mine")
    assert store.read("a/b") == b"mine"
    errors.append(PermissionError())
    with pytest.raises(StoreRefused):
        store.create("a/c", b"never sent before")


@pytest.mark.parametrize("kind", ["loses", "s3"])
def test_an_occupied_key_whose_writer_is_not_told_stays_in_doubt(kind, monkeypatch):
    refusal = StoreRefused("s3://bucket/log", "a/b", "the token has expired")
    store = new("loses")
    monkeypatch.setattr(store, "read", mock.Mock(side_effect=refusal))
    monkeypatch.setattr(fsspec_kinds.LosesAnswers, "losses", 1)
    if kind == "s3":
        store = Scripted(put_object=Occupied(doubtful=False), head_object=refusal)
    with pytest.raises(StoreUnavailable, match="may have written a/b"):
        store.create("a/b", b"second")


def test_credentials_that_were_refused_are_read_again(server, store, aws):
    """A running process gets to know the renewed keys in a file."""
    options = server.options
    text = "[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n"
    (aws / "credentials").write_text(text.format(options["key"], options["secret"]))
    link = BrokenLink(server.endpoint)
    others = {name: value for name, value in options.items() if name not in {"key", "secret"}}
    renewed = BucketStore(store.url, StorageOptions.given({**others, "endpoint_url": link.endpoint}))
    renewed.create("a/b", b"1")
    (aws / "credentials").write_text(text.format(options["key"], "renewed"))
    link.instead = EXPIRED
    with contextlib.suppress(StoreRefused):  # a server that looks at the secret refuses the new one, too
        renewed.put("a/b", b"2")
    signer = renewed.connection().fs._s3._request_signer
    assert signer._credentials.secret_key == "renewed"
    link.close()


def test_an_answer_that_ends_in_its_middle_is_asked_for_again(behind_link, link):
    behind_link.create("a/b", b"0123456789")
    link.cuts = 1
    assert behind_link.read("a/b") == b"0123456789"
    assert [each.split()[0] for each in link.requests] == ["PUT", "GET", "GET"]


def test_a_large_answer_has_more_time_than_a_small_one(behind_link, link, monkeypatch):
    monkeypatch.setattr(file_system, "RETRY_SECONDS", 0)
    behind_link.create("a/large", bytes(1000))
    behind_link.create("a/small", bytes(10))
    monkeypatch.setattr(file_system, "CONNECT_SECONDS", 0)
    monkeypatch.setattr(file_system, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(file_system, "_BYTES_PER_SECOND_MIN", 100)
    link.pause_seconds = 1.5
    assert behind_link.read("a/large") == bytes(1000)
    with pytest.raises(StoreUnavailable, match="does not answer"):
        behind_link.read("a/small")


def test_a_server_that_is_busy_is_asked_again_after_a_pause(store, behind_link, link, monkeypatch):
    pauses, pause = [], file_system._pause
    monkeypatch.setattr(file_system, "_pause", lambda number, busy: pauses.append(pause(number, busy=busy)) or 0)
    link.instead = BUSY
    behind_link.put("a/b", b"bytes")
    assert store.read("a/b") == b"bytes"
    assert [each >= 0.5 for each in pauses] == [True]


def test_a_server_that_never_answers_is_given_up(store, behind_link, link, monkeypatch):
    monkeypatch.setattr(file_system, "RETRY_SECONDS", 0.3)
    link.losses = 1000
    with pytest.raises(StoreUnavailable, match=r"does not answer.*try again"):
        behind_link.create("a/b", b"mine")


SEGMENT = f"topics/t/id/0/{layout.segment_name(0, 1, 'nonce')}.log"
LARGE = os.urandom(bucket.PART_BYTES * 2 + 12345)


def test_a_large_object_is_uploaded_in_parts_and_a_small_one_by_one_request(store, behind_link, link):
    writer = behind_link.open_write("a/small")
    writer.write(b"small")
    writer.close()
    assert [each.split()[0] for each in link.requests] == ["PUT"]
    writer = behind_link.open_write("a/b")
    for start in range(0, len(LARGE), 3_000_000):
        writer.write(memoryview(LARGE)[start : start + 3_000_000])
    link.method, link.losses = "POST", 0
    writer.close()
    assert store.read("a/b") == LARGE
    methods = [each.split()[0] for each in link.requests[1:]]
    assert (methods.count("PUT"), methods.count("POST")) == (3, 2)  # the parts; the beginning and the end
    assert list(store.delete_unfinished(dry_run=True)) == []


@pytest.mark.deep
def test_a_large_object_takes_an_occupied_key_only_to_replace(ceph):
    store = BucketStore(f"s3://{ceph.new_bucket()}/log", StorageOptions.given(ceph.options))
    store.create("a/b", b"first")
    for replace in (False, True):
        writer = store.open_write("a/b", replace=replace)
        writer.write(LARGE)
        with contextlib.nullcontext() if replace else pytest.raises(StoreError, match="already exists"):
            writer.close()
        assert store.size("a/b") == (len(LARGE) if replace else 5)


@pytest.mark.parametrize("server", [deep("ceph")], indirect=True)
def test_a_completion_whose_answer_was_lost_counts(store, behind_link, link):
    writer = behind_link.open_write("a/b")
    writer.write(LARGE)
    link.method, link.losses = "POST", 1
    writer.close()
    assert store.read("a/b") == LARGE
    assert [each.split()[0] for each in link.requests[-2:]] == ["POST", "POST"]


@pytest.mark.parametrize("server", [deep("ceph")], indirect=True)
def test_only_uploads_that_are_old_are_ended(store, monkeypatch):
    writer = store.open_write(SEGMENT)
    writer.write(LARGE)
    assert list(store.delete_unfinished()) == []
    monkeypatch.setattr("pyspark_log_storage.stores.bucket.UNFINISHED_SECONDS", -60)
    (found,) = store.delete_unfinished(dry_run=True)
    assert found.startswith(f"{SEGMENT} (upload ")
    assert list(store.delete_unfinished()) == [found]
    assert list(store.delete_unfinished()) == []
    with pytest.raises(StoreUnavailable, match="write it again"):
        writer.close()


def test_uploads_of_others_in_the_bucket_of_a_log_are_left_alone(moto):
    """moto says of each upload that it began in 2010."""
    bucket = moto.new_bucket()
    store = BucketStore(f"s3://{bucket}", StorageOptions.given(moto.options))
    for key in (SEGMENT, "films/part.mp4", f"other-log/{SEGMENT}", f"{SEGMENT}.old"):
        moto.client().create_multipart_upload(Bucket=bucket, Key=key)
    (ended,) = store.delete_unfinished()
    assert ended.startswith(f"{SEGMENT} (upload ")
    left = moto.client().list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert sorted(each["Key"] for each in left) == ["films/part.mp4", f"other-log/{SEGMENT}", f"{SEGMENT}.old"]


@pytest.mark.deep
def test_a_forked_process_makes_a_connection_of_its_own(store):
    store.put("a/b", b"parent")
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if store.read("a/b") == b"parent" and store.create("a/c", b"child") else 1)
        finally:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    assert store.read("a/c") == b"child"


def test_foreign_objects_with_impossible_names_are_not_listed(server, store):
    bucket, _, prefix = store.url.removeprefix("s3://").partition("/")
    for key in ("a/", "a//b", "a/./b", ".tmp/x", "a/b"):
        server.client().put_object(Bucket=bucket, Key=f"{prefix}/{key}", Body=b"")
    assert list(store.list("")) == ["a/b"]
    assert list(store.folders("")) == ["a"]


@pytest.mark.deep
def test_a_thread_that_outlives_the_main_one_still_reaches_the_server(moto, moto_bucket):
    """A producer does so when its program ends. The first connection resolves a name and loads certificates."""
    program = """
import sys, threading
from pyspark_log_storage.stores.bucket import BucketStore
store = BucketStore(sys.argv[1])
def write():
    threading.main_thread().join()
    store.create("a/b", b"late")
threading.Thread(target=write).start()
"""
    url = f"s3://{moto_bucket}/{uuid.uuid4().hex}"
    names = {"AWS_ENDPOINT_URL": moto.endpoint.replace("127.0.0.1", "localhost"), "AWS_DEFAULT_REGION": "us-east-1"}
    environment = os.environ | names | {"AWS_ACCESS_KEY_ID": moto.key, "AWS_SECRET_ACCESS_KEY": moto.secret}
    done = subprocess.run([sys.executable, "-c", program, url], env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert BucketStore(url, StorageOptions.given(moto.options)).read("a/b") == b"late"


@pytest.mark.parametrize(
    ("url", "package", "cure"),
    [
        ("s3://bucket/log", "s3fs", "pip install s3fs"),
        ("gcs://bucket/log", "gcsfs", "pip install gcsfs"),
        ("az://box/log", "adlfs", "pip install adlfs"),
        ("gs://bucket/log", "fsspec", "pip install gcsfs"),
    ],
)
def test_what_must_be_installed_is_said(monkeypatch, url, package, cure):
    for name in [each for each in sys.modules if each.startswith(("pyspark_log_storage.stores.", f"{package}."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(_registry, "s3", raising=False)  # the class that it found before
    with pytest.raises(InvalidOption) as refused:
        open_store(absolute_url(url))
    assert cure in str(refused.value)


@pytest.mark.parametrize("kind", [fsspec_kinds.LosesAnswers, fsspec_kinds.RepeatsOutOfSight])
@pytest.mark.parametrize("size", [10, 3000])
def test_a_file_whose_answer_was_lost_counts_and_one_of_another_does_not(kind, size, monkeypatch):
    monkeypatch.setattr(bucket, "PART_BYTES", 1000)
    store = new(kind.protocol)
    writer = store.open_write("a/b")
    writer.write(bytes(size))
    monkeypatch.setattr(kind, "losses", 1)
    writer.close()
    assert store.read("a/b") == bytes(size)
    writer = store.open_write("a/b")
    writer.write(b"x" * size)
    with pytest.raises(StoreError, match="already exists"):
        writer.close()
    assert store.read("a/b") == bytes(size)


def test_an_entry_whose_repetition_nobody_saw_is_not_decided_twice(monkeypatch):
    url = f"repeats://{uuid.uuid4().hex}/log"
    log = PlainLog(url)
    log.create("t")
    for number in range(5):
        monkeypatch.setattr(fsspec_kinds.RepeatsOutOfSight, "losses", 3)
        log.append("t", {0: [b"%d" % number]})
        assert fsspec_kinds.RepeatsOutOfSight.losses < 3
    assert read_topic(url, "t").numbers() == [0, 1, 2, 3, 4]


def test_a_large_file_is_gathered_on_disk_and_its_file_removed(monkeypatch, tmp_path):
    monkeypatch.setattr(bucket, "PART_BYTES", 1000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = new("once")
    for end in ("close", "discard"):
        writer = store.open_write(f"a/{end}")
        for _ in range(5):
            writer.write(b"1234567890" * 50)
        assert len(list(tmp_path.iterdir())) == 1
        getattr(writer, end)()
        assert list(tmp_path.iterdir()) == []
    assert store.read("a/close") == b"1234567890" * 250
    assert list(store.list("")) == ["a/close"]
    monkeypatch.setattr("tempfile.tempdir", "/dev/full")
    with pytest.raises(StoreRefused, match="set TMPDIR") as caught:
        store.open_write("a/b").write(bytes(2000))
    assert type(caught.value) is StoreRefused, "it is the writer's fault, not the store's"


def test_a_list_that_fails_in_one_folder_is_not_shorter(monkeypatch):
    store = new("fails")
    for key in ("a/1", "b/2", "c/3/4"):
        store.create(key, b"")
    assert list(store.list("")) == ["a/1", "b/2", "c/3/4"]
    monkeypatch.setattr(fsspec_kinds.Fails, "error", PermissionError(SECRET))
    monkeypatch.setattr(fsspec_kinds.Fails, "ending", "/b")
    with pytest.raises(StoreRefused):
        list(store.list(""))
    monkeypatch.setattr(fsspec_kinds.Fails, "error", FileNotFoundError(SECRET))
    assert list(store.list("")) == ["a/1", "c/3/4"], "the folder was deleted meanwhile"


@pytest.mark.parametrize(
    ("url", "name", "says"),
    [
        ("s3://bucket/log", "secret_key", r"which s3:// stores do not have; available: key, secret"),
        ("once://bucket/log", "use_listings_cache", "which the log sets itself"),
        ("once://bucket/log", "asynchronous", "which the log sets itself"),
        ("once://bucket/log", "account_key", r"refuses its options or credentials \(ValueError\)"),
    ],
)
def test_an_option_that_a_store_cannot_have_is_refused_without_its_value(url, name, says):
    with pytest.raises(LogError, match=says) as caught:
        open_store(url, StorageOptions.given({name: SECRET})).read("a")
    assert SECRET not in repr(caught.value)


def test_what_implementations_log_of_errors_is_left_out(caplog):
    new("once").exists("a")
    logging.getLogger("gcsfs").error("out of retries: %s", SECRET)
    assert SECRET not in caplog.text
