"""The store in S3: what the contract of all stores does not say."""

import contextlib
import itertools
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
from pyspark_log_storage.stores.storage_options import StorageOptions
from tests.servers.broken_link import BrokenLink
from tests.support.rings import deep

BUSY = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 36\r\n\r\n<Error><Code>SlowDown</Code></Error>"
EXPIRED = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 40\r\n\r\n<Error><Code>ExpiredToken</Code></Error>"
CONFLICT = b"HTTP/1.1 409 Conflict\r\nContent-Length: 54\r\n\r\n<Error><Code>ConditionalRequestConflict</Code></Error>"


@pytest.fixture(params=["moto", deep("ceph")])
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def store(server):
    return S3Store(f"s3://{server.new_bucket()}/{uuid.uuid4().hex}", StorageOptions.given(server.options))


@pytest.fixture
def link(server):
    made = BrokenLink(server.endpoint)
    yield made
    made.close()


@pytest.fixture
def behind_link(server, link, store):
    """The same store behind the link."""
    return S3Store(store.url, StorageOptions.given({**server.options, "endpoint_url": link.endpoint}))


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


def test_a_list_has_the_keys_of_all_pages_in_order_also_if_the_bucket_lists_in_none():
    assert list(Scripted(list_objects_v2=pages(keys=["a", "b", "c"], size=2)).list("")) == ["a", "b", "c"]
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
    broken = Scripted(create_multipart_upload=StoreUnavailable("s3://bucket", "a", "it is away"))
    writer = broken.open_write("a")
    with pytest.raises(StoreUnavailable):
        writer.write(bytes(25))
    with pytest.raises(AssertionError):
        writer.close()
    assert [method for method, _ in broken.calls] == ["create_multipart_upload"], "a torn piece is not published"


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


def test_requests_are_counted_with_their_bytes(store):
    store.create("a/b", b"12345")
    assert store.read("a/b", 1, 3) == b"234"
    assert not store.exists("a/c")
    assert counts_of(store.url).by_operation() == {
        "put_object": Requests(1, 5, 0),
        "get_object": Requests(1, 0, 3),
        "head_object": Requests(1, 0, 0),
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
    link.losses = 1
    with pytest.raises(ObjectMissing):
        behind_link.read("a/missing")


def test_a_create_that_is_refused_after_an_answer_was_lost_stays_in_doubt(behind_link, link, monkeypatch):
    """Any other error than a retriable one says that nothing was written."""

    def expire(_):
        link.losses, link.instead = 0, EXPIRED
        return 0

    monkeypatch.setattr(attempts, "_pause", expire)
    link.losses = 2  # aiohttp repeats the first by itself
    with pytest.raises(StoreUnavailable, match=r"token has expired.*may have written a/b"):
        behind_link.create("a/b", b"mine")
    assert behind_link.read("a/b") == b"mine"
    link.always = EXPIRED
    with pytest.raises(StoreRefused, match="token has expired"):
        behind_link.create("a/c", b"never sent before")


def test_an_occupied_key_whose_writer_is_not_told_stays_in_doubt(store, monkeypatch):
    store.create("a/b", b"first")

    def refuse(_):
        raise StoreRefused(store.url, "a/b", "the token has expired")

    monkeypatch.setattr(store, "nonce_of", refuse)
    with pytest.raises(StoreUnavailable, match="may have written a/b"):
        store.create("a/b", b"second")


def test_a_create_that_is_refused_after_a_conflict_stays_in_doubt(behind_link, link, monkeypatch):
    """The conflict may be with an earlier attempt of its own, which is still at work."""
    look, link.instead = behind_link.nonce_of, CONFLICT

    def look_and_expire(key):
        found = look(key)
        link.always = EXPIRED
        return found

    monkeypatch.setattr(behind_link, "nonce_of", look_and_expire)
    with pytest.raises(StoreUnavailable, match=r"token has expired.*may have written a/b"):
        behind_link.create("a/b", b"mine")


def test_conflicts_without_an_object_are_met_with_pauses_that_grow_and_are_given_up(monkeypatch):
    slept = []
    monkeypatch.setattr(s3.time, "sleep", slept.append)
    store = Scripted(put_object=s3.Answered(409), head_object=ObjectMissing("s3://bucket/log", "a"))
    with pytest.raises(StoreUnavailable, match="again and again"):
        store.create("a", b"")
    assert len(store.calls) == 2 * s3.CONFLICTS_MAX
    assert slept[0] == 0
    assert all(later > earlier for earlier, later in itertools.pairwise(slept))
    assert 2 < sum(slept) < 10


def test_credentials_that_were_refused_are_read_again(server, store, monkeypatch, tmp_path):
    """A running process gets to know the renewed keys in a file."""
    options = server.options
    text = "[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n"
    (tmp_path / "credentials").write_text(text.format(options["key"], options["secret"]))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    link = BrokenLink(server.endpoint)
    others = {name: value for name, value in options.items() if name not in {"key", "secret"}}
    renewed = S3Store(store.url, StorageOptions.given({**others, "endpoint_url": link.endpoint}))
    renewed.create("a/b", b"1")
    (tmp_path / "credentials").write_text(text.format(options["key"], "renewed"))
    link.instead = EXPIRED
    with contextlib.suppress(StoreRefused):  # a server that looks at the secret refuses the new one, too
        renewed.put("a/b", b"2")
    signer = s3_client.client_of(renewed._options, renewed.url).fs._s3._request_signer
    assert signer._credentials.secret_key == "renewed"
    link.close()


def test_an_answer_that_ends_in_its_middle_is_asked_for_again(behind_link, link):
    behind_link.create("a/b", b"0123456789")
    link.cuts = 1
    assert behind_link.read("a/b") == b"0123456789"
    assert [each.split()[0] for each in link.requests] == ["PUT", "GET", "GET"]


def test_a_large_answer_has_more_time_than_a_small_one(behind_link, link, monkeypatch):
    monkeypatch.setattr(attempts, "RETRY_SECONDS", 0)
    behind_link.create("a/large", bytes(1000))
    behind_link.create("a/small", bytes(10))
    monkeypatch.setattr(attempts, "CONNECT_SECONDS", 0)
    monkeypatch.setattr(attempts, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(attempts, "_BYTES_PER_SECOND_MIN", 100)
    link.pause_seconds = 1.5
    assert behind_link.read("a/large") == bytes(1000)
    with pytest.raises(StoreUnavailable, match="does not answer"):
        behind_link.read("a/small")


def test_a_server_that_is_busy_is_asked_again_after_a_pause(store, behind_link, link, monkeypatch):
    pauses, pause = [], attempts._pause
    monkeypatch.setattr(attempts, "_pause", lambda state: pauses.append(pause(state)) or 0)
    link.instead = BUSY
    behind_link.put("a/b", b"bytes")
    assert store.read("a/b") == b"bytes"
    assert [each >= 0.5 for each in pauses] == [True]


def test_a_server_that_never_answers_is_given_up(store, behind_link, link, monkeypatch):
    monkeypatch.setattr(attempts, "RETRY_SECONDS", 0.3)
    link.losses = 1000
    with pytest.raises(StoreUnavailable, match=r"does not answer.*try again"):
        behind_link.create("a/b", b"mine")


SEGMENT = f"topics/t/id/0/{layout.segment_name(0, 1, 'nonce')}.log"
LARGE = os.urandom(s3.PART_BYTES * 2 + 12345)


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
    store = S3Store(f"s3://{ceph.new_bucket()}/log", StorageOptions.given(ceph.options))
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


def test_without_s3fs_an_address_of_s3_says_what_to_install(monkeypatch):
    for name in [each for each in sys.modules if each.startswith("pyspark_log_storage.stores.s3")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(InvalidOption, match=r"pip install s3fs aiobotocore tenacity"):
        open_store("s3://bucket/log")


@pytest.mark.deep
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
