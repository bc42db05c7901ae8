"""The store in S3: what the contract of all stores does not say."""

import os
import subprocess
import sys
import uuid
from concurrent.futures import Future

import pytest

from pyspark_log_storage import layout
from pyspark_log_storage.errors import InvalidOption, ObjectMissing, StoreError, StoreRefused, StoreUnavailable
from pyspark_log_storage.stores import attempts, s3, s3_client
from pyspark_log_storage.stores.addresses import absolute_url, open_store
from pyspark_log_storage.stores.request_counts import Requests, counts_of
from pyspark_log_storage.stores.s3 import S3Store
from pyspark_log_storage.stores.self_test import self_test
from pyspark_log_storage.stores.storage_options import StorageOptions
from tests.servers.broken_link import BrokenLink

BUSY = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 36\r\n\r\n<Error><Code>SlowDown</Code></Error>"
EXPIRED = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 40\r\n\r\n<Error><Code>ExpiredToken</Code></Error>"
CONFLICT = b"HTTP/1.1 409 Conflict\r\nContent-Length: 54\r\n\r\n<Error><Code>ConditionalRequestConflict</Code></Error>"


@pytest.fixture
def store(ceph, ceph_bucket):
    return S3Store(f"s3://{ceph_bucket}/{uuid.uuid4().hex}", StorageOptions.given(ceph.options))


@pytest.fixture
def link(ceph):
    made = BrokenLink(ceph.endpoint)
    yield made
    made.close()


@pytest.fixture
def behind_link(ceph, link, store):
    """The same store behind the link."""
    return S3Store(store.url, StorageOptions.given({**ceph.options, "endpoint_url": link.endpoint}))


class Scripted(S3Store):
    """A store whose server does what a test says: `answer` has the answer to each method, or an error."""

    def __init__(self, url="s3://bucket/log", **answer):
        super().__init__(url)
        self.answer, self.calls = answer, []

    def start(self, method, key, expects=(), *, as_prefix=False, **arguments):
        self.calls.append((method, arguments))
        found, done = self.answer.get(method, {}), Future()
        found = found(arguments) if callable(found) else found
        if isinstance(found, Exception):
            done.set_exception(found)
        else:
            done.set_result(found)
        return done


def pages(*, keys, size):
    """Return the answer to a list that has so many keys on a page."""

    def answer(arguments):
        begin = int(arguments.get("ContinuationToken", 0))
        page = {"Contents": [{"Key": f"log/{each}"} for each in keys[begin : begin + size]]}
        more = {"IsTruncated": True, "NextContinuationToken": str(begin + size)}
        return page | (more if begin + size < len(keys) else {"IsTruncated": False})

    return answer


def test_a_list_has_the_keys_of_all_pages():
    assert list(Scripted(list_objects_v2=pages(keys=["a", "b", "c"], size=2)).list("")) == ["a", "b", "c"]


def test_a_list_of_a_bucket_that_lists_in_no_order_is_in_order():
    store = Scripted("s3://bucket--eun1-az1--x-s3/log", list_objects_v2=pages(keys=["c", "a", "d", "b"], size=3))
    assert list(store.list("", "a")) == ["b", "c", "d"]
    assert all("StartAfter" not in arguments for _, arguments in store.calls)


UPLOADED = {"create_multipart_upload": {"UploadId": "1"}, "upload_part": {"ETag": "etag"}}


def test_the_parts_of_a_large_object_grow_because_their_number_is_limited(monkeypatch):
    monkeypatch.setattr(s3, "PART_BYTES", 10)
    monkeypatch.setattr(s3, "PARTS_OF_ONE_SIZE", 2)
    store = Scripted(**UPLOADED)
    writer = store.open_write("a")
    writer.write(bytes(10 + 10 + 20 + 20 + 30 + 1))
    assert [len(given["Body"]) for method, given in store.calls if method == "upload_part"] == [10, 10, 20, 20, 30]


def test_a_writer_that_fails_in_the_middle_of_a_piece_publishes_nothing(monkeypatch):
    monkeypatch.setattr(s3, "PART_BYTES", 10)
    store = Scripted(create_multipart_upload=StoreUnavailable("s3://bucket", "a", "it is away"))
    writer = store.open_write("a")
    with pytest.raises(StoreUnavailable):
        writer.write(bytes(25))
    with pytest.raises(AssertionError):
        writer.close()
    assert [method for method, _ in store.calls] == ["create_multipart_upload"]


@pytest.mark.parametrize("there", [False, True])
def test_a_large_object_replaces_no_other_on_a_server_that_knows_no_condition(monkeypatch, there):
    monkeypatch.setattr(s3, "PART_BYTES", 10)

    def completed(arguments):
        return s3_client.Answered(501) if "IfNoneMatch" in arguments else {}

    head = {"ContentLength": 1, "Metadata": {}} if there else ObjectMissing("s3://bucket", "a")
    store = Scripted(**UPLOADED, complete_multipart_upload=completed, head_object=head)
    writer = store.open_write("a")
    writer.write(bytes(25))
    if there:
        with pytest.raises(StoreError, match="already exists"):
            writer.close()
    else:
        writer.close()
    methods = [method for method, _ in store.calls]
    assert methods.count("complete_multipart_upload") == (0 if there else 2)
    assert methods.count("abort_multipart_upload") == int(there), "no parts stay behind"


@pytest.mark.parametrize("server", ["ceph", "moto"])
def test_the_servers_can_hold_a_log(request, server):
    found = request.getfixturevalue(server)
    store = S3Store(f"s3://{found.new_bucket()}/log", StorageOptions.given(found.options))
    self_test(store, "nonce")
    assert list(store.list("")) == []


def test_requests_are_counted_with_their_bytes(moto, moto_bucket):
    store = S3Store(f"s3://{moto_bucket}/{uuid.uuid4().hex}", StorageOptions.given(moto.options))
    store.create("a/b", b"12345")
    assert store.read("a/b", 1, 3) == b"234"
    assert not store.exists("a/c")
    assert counts_of(store.url).by_operation() == {
        "put_object": Requests(1, 5, 0),
        "get_object": Requests(1, 0, 3),
        "head_object": Requests(1, 0, 0),
    }


def test_a_create_whose_answer_was_lost_is_repeated_and_knows_its_own_object(store, behind_link, link):
    link.losses = 1
    assert behind_link.create("a/b", b"mine") is True
    assert [each.split()[0] for each in link.requests] == ["PUT", "PUT", "HEAD"]
    assert store.read("a/b") == b"mine"


def test_a_create_whose_answer_was_lost_does_not_take_the_object_of_another(store, behind_link, link):
    store.create("a/b", b"same bytes")
    link.losses = 1
    assert behind_link.create("a/b", b"same bytes") is False


@pytest.fixture
def link_to_moto(moto):
    made = BrokenLink(moto.endpoint)
    yield made
    made.close()


@pytest.fixture
def at_moto(moto, moto_bucket, link_to_moto):
    """A store at moto behind a link."""
    options = StorageOptions.given({**moto.options, "endpoint_url": link_to_moto.endpoint})
    return S3Store(f"s3://{moto_bucket}/{uuid.uuid4().hex}", options)


def test_a_create_that_is_refused_after_an_answer_was_lost_stays_in_doubt(at_moto, link_to_moto, monkeypatch):
    """Any other error than a retriable one says that nothing was written."""

    def expire(_):
        link_to_moto.losses, link_to_moto.instead = 0, EXPIRED
        return 0

    monkeypatch.setattr(attempts, "_pause", expire)
    link_to_moto.losses = 2  # aiohttp repeats the first by itself
    with pytest.raises(StoreUnavailable, match=r"token has expired.*may have written a/b"):
        at_moto.create("a/b", b"mine")
    assert at_moto.read("a/b") == b"mine"
    link_to_moto.instead = EXPIRED
    with pytest.raises(StoreRefused, match="token has expired"):
        at_moto.create("a/c", b"never sent before")


def test_an_occupied_key_whose_writer_is_not_told_stays_in_doubt(at_moto, monkeypatch):
    at_moto.create("a/b", b"first")

    def refuse(_):
        raise StoreRefused(at_moto.url, "a/b", "the token has expired")

    monkeypatch.setattr(at_moto, "nonce_of", refuse)
    with pytest.raises(StoreUnavailable, match="may have written a/b"):
        at_moto.create("a/b", b"second")


def test_a_create_that_is_refused_after_a_conflict_stays_in_doubt(at_moto, link_to_moto, monkeypatch):
    """The conflict may be with an earlier attempt of its own, which is still at work."""
    look, link_to_moto.instead = at_moto.nonce_of, CONFLICT

    def look_and_expire(key):
        found = look(key)
        link_to_moto.instead = EXPIRED
        return found

    monkeypatch.setattr(at_moto, "nonce_of", look_and_expire)
    with pytest.raises(StoreUnavailable, match=r"token has expired.*may have written a/b"):
        at_moto.create("a/b", b"mine")


def test_what_is_missing_after_an_answer_was_lost_is_missing(at_moto, link_to_moto):
    link_to_moto.losses = 1
    with pytest.raises(ObjectMissing):
        at_moto.read("a/b")


def test_an_answer_that_ends_in_its_middle_is_asked_for_again(at_moto, link_to_moto):
    at_moto.create("a/b", b"0123456789")
    link_to_moto.cuts = 1
    assert at_moto.read("a/b") == b"0123456789"
    assert [each.split()[0] for each in link_to_moto.requests] == ["PUT", "GET", "GET"]


def test_a_large_answer_has_more_time_than_a_small_one(at_moto, link_to_moto, monkeypatch):
    monkeypatch.setattr(attempts, "RETRY_SECONDS", 0)
    at_moto.create("a/large", bytes(1000))
    at_moto.create("a/small", bytes(10))
    monkeypatch.setattr(attempts, "CONNECT_SECONDS", 0)
    monkeypatch.setattr(attempts, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(attempts, "_BYTES_PER_SECOND_MIN", 100)
    link_to_moto.pause_seconds = 1.5
    assert at_moto.read("a/large") == bytes(1000)
    with pytest.raises(StoreUnavailable, match="does not answer"):
        at_moto.read("a/small")


def test_a_conflict_is_no_answer_and_ends_in_one(store, behind_link, link):
    link.instead = CONFLICT
    assert behind_link.create("a/b", b"mine") is True
    store.create("a/c", b"another's")
    link.instead = CONFLICT
    assert behind_link.create("a/c", b"mine") is False


def test_a_server_that_is_busy_is_asked_again_after_a_pause(store, behind_link, link, monkeypatch):
    pauses = []
    monkeypatch.setattr(attempts, "_pause", lambda state: pauses.append(PAUSE(state)) or 0)
    link.instead = BUSY
    behind_link.put("a/b", b"bytes")
    assert store.read("a/b") == b"bytes"
    assert [pause >= 0.5 for pause in pauses] == [True]


PAUSE = attempts._pause


def test_a_server_that_never_answers_is_given_up(store, behind_link, link, monkeypatch):
    monkeypatch.setattr(attempts, "RETRY_SECONDS", 0.3)
    link.losses = 1000
    with pytest.raises(StoreUnavailable, match=r"does not answer.*try again"):
        behind_link.create("a/b", b"mine")


SEGMENT = f"topics/t/id/0/{layout.segment_name(0, 1, 'nonce')}.log"
LARGE = os.urandom(s3.PART_BYTES * 2 + 12345)


def test_a_large_object_is_uploaded_in_parts(store, behind_link, link):
    writer = behind_link.open_write("a/b")
    for start in range(0, len(LARGE), 3_000_000):
        writer.write(memoryview(LARGE)[start : start + 3_000_000])
    writer.close()
    assert store.read("a/b") == LARGE
    methods = [each.split()[0] for each in link.requests]
    assert (methods.count("PUT"), methods.count("POST")) == (3, 2)  # the parts; the beginning and the end
    assert list(store.delete_unfinished(dry_run=True)) == []


def test_an_object_of_one_part_costs_one_request(behind_link, link):
    writer = behind_link.open_write("a/b")
    writer.write(b"small")
    writer.close()
    assert [each.split()[0] for each in link.requests] == ["PUT"]


def test_a_large_object_cannot_take_an_occupied_key(store):
    store.create("a/b", b"first")
    writer = store.open_write("a/b")
    writer.write(LARGE)
    with pytest.raises(StoreError, match="already exists"):
        writer.close()
    assert store.read("a/b") == b"first"


def test_a_large_object_may_replace_another(store):
    store.create("a/b", b"first")
    writer = store.open_write("a/b", replace=True)
    writer.write(LARGE)
    writer.close()
    assert store.size("a/b") == len(LARGE)


def test_a_completion_whose_answer_was_lost_counts(store, behind_link, link):
    writer = behind_link.open_write("a/b")
    writer.write(LARGE)
    link.method, link.losses = "POST", 1
    writer.close()
    assert store.read("a/b") == LARGE
    assert [each.split()[0] for each in link.requests[-2:]] == ["POST", "POST"]


def test_only_uploads_that_are_old_are_ended(ceph, ceph_bucket, store, monkeypatch):
    writer = store.open_write(SEGMENT)
    writer.write(LARGE)
    assert list(store.delete_unfinished()) == []
    monkeypatch.setattr("pyspark_log_storage.stores.s3.UNFINISHED_SECONDS", -60)
    (found,) = store.delete_unfinished(dry_run=True)
    assert found.startswith(f"{SEGMENT} (upload ")
    assert list(store.delete_unfinished()) == [found]
    assert list(store.delete_unfinished()) == []
    with pytest.raises(StoreUnavailable, match="write it again"):
        writer.close()


def test_uploads_of_others_in_the_bucket_of_a_log_are_left_alone(moto):
    """moto says of each upload that it began in 2010."""
    bucket = moto.new_bucket()
    store = S3Store(f"s3://{bucket}", StorageOptions.given(moto.options))
    for key in (SEGMENT, "films/part.mp4", f"other-log/{SEGMENT}", f"{SEGMENT}.old"):
        moto.client().create_multipart_upload(Bucket=bucket, Key=key)
    (ended,) = store.delete_unfinished()
    assert ended.startswith(f"{SEGMENT} (upload ")
    left = moto.client().list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert sorted(each["Key"] for each in left) == ["films/part.mp4", f"other-log/{SEGMENT}", f"{SEGMENT}.old"]


def test_two_stores_with_the_same_options_share_a_connection(ceph, store):
    other = S3Store("s3://another/place", StorageOptions.given({**ceph.options, "s3://else": {"key": "x"}}))
    assert s3_client.client_of(store._options, store.url) is s3_client.client_of(other._options, other.url)


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


def test_foreign_objects_with_impossible_names_are_not_listed(ceph, ceph_bucket, store):
    prefix = store.url.partition(f"{ceph_bucket}/")[2]
    for key in ("a/", "a//b", "a/./b", ".tmp/x", "a/b"):
        ceph.client().put_object(Bucket=ceph_bucket, Key=f"{prefix}/{key}", Body=b"")
    assert list(store.list("")) == ["a/b"]
    assert list(store.folders("")) == ["a"]


def test_s3a_means_s3(store):
    assert absolute_url("S3A://bucket/log/") == "s3://bucket/log"


@pytest.mark.parametrize("url", ["s3://key:secret@bucket/log", "s3://bucket/log?versionId=1", "s3://b/../x", "s3://"])
def test_an_address_that_is_no_folder_of_a_bucket_is_refused_without_its_login(url):
    with pytest.raises(InvalidOption) as caught:
        open_store(absolute_url(url))
    assert "secret" not in str(caught.value)


def test_an_unknown_storage_option_is_refused_without_its_value():
    store = S3Store("s3://bucket/log", StorageOptions.given({"secret_key": "canary"}))
    with pytest.raises(InvalidOption, match=r"'secret_key'.*secret") as caught:
        store.read("a")
    assert "canary" not in str(caught.value)


def test_without_s3fs_an_address_of_s3_says_what_to_install():
    script = (
        "import sys; sys.modules['s3fs'] = None\n"
        "from pyspark_log_storage.stores.addresses import open_store\n"
        "from pyspark_log_storage.errors import InvalidOption\n"
        "try: open_store('s3://bucket/log')\n"
        "except InvalidOption as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'pyspark-log[s3]'" in done.stdout
    assert done.stdout.count("\n") == 1


def test_a_thread_that_outlives_the_main_one_still_reaches_the_server(moto, moto_bucket):
    """A producer does so when its program ends. The first connection resolves a name and loads certificates."""
    program = """
import sys, threading
from pyspark_log_storage.stores.s3 import S3Store
store = S3Store(sys.argv[1])
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
    assert S3Store(url, StorageOptions.given(moto.options)).read("a/b") == b"late"
