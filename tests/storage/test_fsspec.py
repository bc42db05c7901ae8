"""The store behind fsspec: what the contract of all stores does not say."""

import json
import logging
import subprocess
import sys
import threading
import time
import uuid

import pytest

from pyspark_log_storage.errors import (
    CorruptObject,
    InvalidOption,
    NodeMissing,
    ObjectMissing,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    StoreUnfit,
    StoreUnwritable,
)
from pyspark_log_storage.stores import attempts, fsspec_client, fsspec_store
from pyspark_log_storage.stores.addresses import absolute_url, open_store
from pyspark_log_storage.stores.request_counts import Requests, counts_of
from pyspark_log_storage.stores.self_test import self_test
from pyspark_log_storage.stores.storage_options import ENVIRONMENT_VARIABLE, StorageOptions
from tests.support import fsspec_kinds
from tests.support.log_reader import read_topic
from tests.support.plain_log import PlainLog

SECRET = "canary-4711"


def new(scheme, **options):
    return open_store(f"{scheme}://{uuid.uuid4().hex}/log", StorageOptions.given(options))


@pytest.fixture
def fails(monkeypatch):
    """Return a store that fails with an error, for keys with an ending."""

    def make(error, ending=""):
        monkeypatch.setattr(attempts, "RETRY_SECONDS", 0.0)
        monkeypatch.setattr(fsspec_kinds.Fails, "ending", ending)
        monkeypatch.setattr(fsspec_kinds.Fails, "error", error)
        return new("fails")

    return make


def test_a_log_is_written_and_read():
    url = f"once://{uuid.uuid4().hex}/log"
    log = PlainLog(url)
    log.create("t", 2)
    log.append("t", {0: [b"1", b"2"], 1: [b"3"]})
    log.append("t", {0: [b"4"]})
    assert read_topic(url, "t").numbers() == [1, 2, 4, 3]


def test_a_log_is_written_and_read_in_s3_through_fsspec(ceph, ceph_bucket, monkeypatch):
    url = f"s3again://{ceph_bucket}/{uuid.uuid4().hex}"
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, json.dumps(ceph.options))
    log = PlainLog(url)
    log.create("t")
    for number in range(3):
        log.append("t", {0: [b"%d" % number]})
    assert read_topic(url, "t").numbers() == [0, 1, 2]
    log.delete("t")


def test_a_store_that_ignores_the_mode_is_refused():
    with pytest.raises(StoreUnfit, match="overwrites an existing object"):
        PlainLog(store=new("ignores"))


def test_a_store_that_looks_before_it_writes_is_refused(monkeypatch):
    monkeypatch.setattr(fsspec_kinds.LooksFirst, "looked", threading.Barrier(2))
    with pytest.raises(StoreUnfit, match="create an object at once"):
        self_test(new("looks"), "nonce")


@pytest.mark.parametrize("url", ["hdfs://host/log", "github://org/repo"])
def test_what_has_no_create_of_its_own_is_refused_at_once(url):
    with pytest.raises(InvalidOption, match="two processes could create the same one"):
        open_store(url)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("memory://log", "in the memory of one process"),
        ("local://log", "write a folder as"),
        ("simplecache::gs://bucket/log", "cannot be chained"),
        ("unheard-of://bucket/log", "no scheme that fsspec knows"),
        ("once://", "BUCKET"),
        ("abfs://container@account.dfs.core.windows.net/log", "account_name in storage_options"),
    ],
)
def test_an_address_that_cannot_hold_a_log_is_refused(url, reason):
    with pytest.raises(InvalidOption, match=reason):
        open_store(absolute_url(url))


@pytest.mark.parametrize(
    ("url", "package", "extra"), [("gcs://bucket/log", "gcsfs", "gcs"), ("az://box/log", "adlfs", "azure")]
)
def test_what_must_be_installed_is_said(url, package, extra):
    script = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from pyspark_log_storage.stores.addresses import absolute_url, open_store\n"
        "from pyspark_log_storage.errors import InvalidOption\n"
        f"try: open_store(absolute_url({url!r}))\n"
        "except InvalidOption as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert f"pip install {package}, or pip install 'pyspark-log[{extra}]'" in done.stdout
    assert done.stdout.count("\n") == 1


def test_without_fsspec_an_address_says_what_to_install():
    script = (
        "import sys; sys.modules['fsspec'] = None\n"
        "from pyspark_log_storage.stores.addresses import open_store\n"
        "from pyspark_log_storage.errors import InvalidOption\n"
        "try: open_store('gs://bucket/log')\n"
        "except InvalidOption as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install fsspec tenacity" in done.stdout
    assert done.stdout.count("\n") == 1


def test_requests_are_counted_with_their_bytes():
    store = new("once")
    store.create("a/b", b"12345")
    assert store.read("a/b", 1, 3) == b"234"
    counts = counts_of(store.url).by_operation()
    assert counts == {"pipe_file": Requests(1, 5, 0), "cat_file": Requests(1, 0, 3)}


def test_a_create_whose_answer_was_lost_is_repeated_and_knows_its_own_object(monkeypatch):
    store = new("loses")
    monkeypatch.setattr(fsspec_kinds.LosesAnswers, "losses", 1)
    assert store.create("a/b", b"mine") is True
    assert counts_of(store.url).by_operation()["pipe_file"].number == 2


def test_a_create_whose_answer_was_lost_does_not_take_the_object_of_another(monkeypatch):
    store, other = new("fails"), []

    def lose(_, path):
        if not other:
            other.append(path)
            fsspec_kinds.Once().pipe_file(path, b"other")
            raise ConnectionResetError

    monkeypatch.setattr(fsspec_kinds.Fails, "fail", lose)
    assert store.create("a/b", b"mine") is False
    assert store.read("a/b") == b"other"


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


def test_an_occupied_key_whose_writer_is_not_told_stays_in_doubt(monkeypatch):
    store = new("loses")

    def vanish(*_):
        raise ObjectMissing(store.url, "a/b")

    monkeypatch.setattr(store, "read", vanish)
    monkeypatch.setattr(fsspec_kinds.LosesAnswers, "losses", 1)
    with pytest.raises(StoreUnavailable, match="may have written a/b"):
        store.create("a/b", b"mine")


def test_a_large_answer_has_more_time_than_a_small_one(monkeypatch):
    monkeypatch.setattr(attempts, "RETRY_SECONDS", 0)
    monkeypatch.setattr(attempts, "CONNECT_SECONDS", 0)
    monkeypatch.setattr(attempts, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(attempts, "_BYTES_PER_SECOND_MIN", 100)
    store = new("fails")
    fsspec_kinds.Once().pipe_file(f"/{store.url.partition('://')[2]}/a", bytes(1000))
    monkeypatch.setattr(fsspec_kinds.Fails, "fail", lambda *_: time.sleep(0.6))
    assert store.read("a", 0, 1000) == bytes(1000)
    with pytest.raises(StoreUnavailable, match="does not answer in time"):
        store.read("a", 0, 10)


def test_no_whole_request_to_google_is_limited_to_the_time_of_a_small_one(monkeypatch):
    """gcsfs hands its `requests_timeout` to aiohttp, which ends uploads that take longer."""
    given = {}

    class Google(fsspec_kinds.Once):
        def __init__(self, **options):
            given.update(options)
            super().__init__(**options)

    fsspec_client.FileSystemClient(Google, "gs", {}, "gs://bucket/log")
    assert "requests_timeout" not in given


@pytest.mark.parametrize("kind", ["loses", "repeats"])
@pytest.mark.parametrize("size", [10, 3000])
def test_a_file_whose_answer_was_lost_counts(kind, size, monkeypatch):
    monkeypatch.setattr(fsspec_store, "MEMORY_BYTES", 1000)
    store = new(kind)
    writer = store.open_write("a/b")
    writer.write(bytes(size))
    monkeypatch.setattr(type_of(kind), "losses", 1)
    writer.close()
    assert store.read("a/b") == bytes(size)


def test_a_file_of_another_that_is_as_long_is_not_taken_for_ones_own():
    store = new("once")
    store.create("a/b", b"theirs")
    writer = store.open_write("a/b")
    writer.write(b"not it")
    with pytest.raises(StoreError, match="already exists"):
        writer.close()
    assert store.read("a/b") == b"theirs"


def test_an_object_that_is_larger_than_the_maximum_is_damaged_and_not_shorter(monkeypatch):
    monkeypatch.setattr(fsspec_store, "READ_BYTES_MAX", 10)
    store = new("once")
    store.create("a", bytes(10))
    store.create("b", bytes(11))
    assert store.read("a") == bytes(10)
    with pytest.raises(CorruptObject, match="more than 10 bytes"):
        store.read("b")
    assert store.read("b", 0, 11) == bytes(11)


def type_of(kind):
    return next(each for each in fsspec_kinds.KINDS if each.protocol == kind)


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
    monkeypatch.setattr(fsspec_store, "MEMORY_BYTES", 1000)
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


def test_a_full_disk_for_gathered_files_is_the_writers_fault_not_the_stores(monkeypatch):
    monkeypatch.setattr(fsspec_store, "MEMORY_BYTES", 1000)
    monkeypatch.setattr("tempfile.tempdir", "/dev/full")
    writer = new("once").open_write("a/b")
    with pytest.raises(StoreRefused, match="set TMPDIR") as caught:
        writer.write(bytes(2000))
    assert type(caught.value) is StoreRefused


def test_a_list_that_fails_in_one_folder_is_not_shorter(fails):
    store = fails(None)
    for key in ("a/1", "b/2", "c/3"):
        store.create(key, b"")
    fsspec_kinds.Fails.error, fsspec_kinds.Fails.ending = PermissionError(SECRET), "/b"
    with pytest.raises(StoreRefused):
        list(store.list(""))


def with_status(status):
    error = RuntimeError(f"https://host/x?sig={SECRET}")
    error.status_code = status
    return error


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (PermissionError(SECRET), StoreRefused, "no right to do this"),
        (OSError(f"Forbidden: {SECRET}"), StoreRefused, "no right to do this"),
        (with_status(401), StoreRefused, "refuses the credentials"),
        (with_status(403), StoreRefused, "no right to do this"),
        (with_status(404), ObjectMissing, "there is no object"),
        (with_status(418), StoreRefused, "status 418"),
        (with_status(503), StoreUnavailable, "answered 503"),
        (with_status(408), StoreUnavailable, "answered 408"),
        (with_status(409), StoreUnavailable, "answered 409"),
        (with_status(507), StoreUnwritable, "quota"),
        (ConnectionRefusedError(SECRET), StoreUnavailable, "cannot be reached"),
        (TimeoutError(SECRET), StoreUnavailable, "does not answer in time"),
        (NotImplementedError(SECRET), StoreUnfit, "does not support cat_file"),
        (ValueError(SECRET), StoreRefused, "failed with ValueError"),
    ],
    ids=lambda each: str(getattr(each, "status_code", type(each).__name__)) if isinstance(each, Exception) else "",
)
def test_each_error_is_one_line_without_secrets_or_foreign_stack(fails, error, kind, says):
    with pytest.raises(StoreError, match=says) as caught:
        fails(error, ending="a").read("a", 1, 2)
    assert isinstance(caught.value, kind)
    text = str(caught.value)
    assert SECRET not in text
    assert "\n" not in text
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_missing_bucket_shows_when_something_is_written(fails):
    with pytest.raises(NodeMissing, match="bucket or container does not exist"):
        fails(FileNotFoundError(SECRET)).create("a", b"")


def test_a_server_that_hangs_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(attempts, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(fsspec_client, "seconds_for", lambda _: 0.05)
    hang = threading.Event()
    monkeypatch.setattr(fsspec_kinds.Fails, "fail", lambda *_: hang.wait(20))
    try:
        with pytest.raises(StoreUnavailable, match="does not answer in time"):
            new("fails").read("a")
    finally:
        hang.set()


def test_options_that_an_implementation_refuses_are_not_shown(monkeypatch):
    def refuse(self, **options):
        raise ValueError(f"bad {options}")

    monkeypatch.setattr(fsspec_kinds.Once, "__init__", refuse)
    with pytest.raises(StoreRefused, match=r"refuses its options or credentials \(ValueError\)") as caught:
        new("once", account_key=SECRET).read("a")
    assert SECRET not in repr(caught.value)


@pytest.mark.parametrize("name", ["use_listings_cache", "asynchronous", "skip_instance_cache"])
def test_options_that_the_log_sets_are_refused(name):
    with pytest.raises(InvalidOption, match=name):
        new("once", **{name: True}).read("a")


def test_what_implementations_log_of_errors_is_left_out(caplog):
    new("once").exists("a")
    logging.getLogger("gcsfs").error("out of retries: %s", SECRET)
    assert SECRET not in caplog.text


def test_other_names_of_schemes_mean_the_same():
    assert absolute_url("gcs://bucket/log/") == "gs://bucket/log"
    assert absolute_url("AZ://box/log") == absolute_url("abfss://box/log") == "abfs://box/log"
    options = StorageOptions.given({"az://box": {"account_name": "a"}})
    assert options.at("abfs://box/log") == {"account_name": "a"}
