"""The store behind fsspec: what the contract of all stores does not say."""

import logging
import sys
import threading
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
from pyspark_log_storage.stores import attempts, fsspec_store
from pyspark_log_storage.stores.addresses import absolute_url, open_store
from pyspark_log_storage.stores.request_counts import Requests, counts_of
from pyspark_log_storage.stores.self_test import self_test
from pyspark_log_storage.stores.storage_options import StorageOptions
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


def test_a_store_that_ignores_the_mode_or_looks_before_it_writes_is_refused(monkeypatch):
    with pytest.raises(StoreUnfit, match="overwrites an existing object"):
        PlainLog(store=new("ignores"))
    monkeypatch.setattr(fsspec_kinds.LooksFirst, "looked", threading.Barrier(2))
    with pytest.raises(StoreUnfit, match="create an object at once"):
        self_test(new("looks"), "nonce")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("memory://log", "in the memory of one process"),
        ("local://log", "write a folder as"),
        ("simplecache::gs://bucket/log", "cannot be chained"),
        ("unheard-of://bucket/log", "no scheme that fsspec knows"),
        ("once://", "BUCKET"),
        ("abfs://container@account.dfs.core.windows.net/log", "account_name in storage_options"),
        ("github://org/repo", "two processes could create the same one"),
    ],
)
def test_an_address_that_cannot_hold_a_log_is_refused(url, reason):
    with pytest.raises(InvalidOption, match=reason):
        open_store(absolute_url(url))


@pytest.mark.parametrize(
    ("url", "package", "cure"),
    [
        ("gcs://bucket/log", "gcsfs", "pip install gcsfs tenacity"),
        ("az://box/log", "adlfs", "pip install adlfs tenacity"),
        ("gs://bucket/log", "fsspec", "pip install fsspec tenacity"),
    ],
)
def test_what_must_be_installed_is_said(monkeypatch, url, package, cure):
    for name in [each for each in sys.modules if each.startswith(("pyspark_log_storage.stores.fsspec", f"{package}."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InvalidOption) as refused:
        open_store(absolute_url(url))
    assert cure in str(refused.value)


def test_requests_are_counted_with_their_bytes(monkeypatch):
    store = new("once")
    store.create("a/b", b"12345")
    assert store.read("a/b", 1, 3) == b"234"
    counts = counts_of(store.url).by_operation()
    assert counts == {"pipe_file": Requests(1, 5, 0), "cat_file": Requests(1, 0, 3)}
    store = new("loses")
    monkeypatch.setattr(fsspec_kinds.LosesAnswers, "losses", 1)
    assert store.create("a/b", b"mine") is True, "the answer was lost, and it knows its own object"
    assert counts_of(store.url).by_operation()["pipe_file"].number == 2


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


@pytest.mark.parametrize("kind", [fsspec_kinds.LosesAnswers, fsspec_kinds.RepeatsOutOfSight])
@pytest.mark.parametrize("size", [10, 3000])
def test_a_file_whose_answer_was_lost_counts_and_one_of_another_does_not(kind, size, monkeypatch):
    monkeypatch.setattr(fsspec_store, "MEMORY_BYTES", 1000)
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


def test_an_object_that_is_larger_than_the_maximum_is_damaged_and_not_shorter(monkeypatch):
    monkeypatch.setattr(fsspec_store, "READ_BYTES_MAX", 10)
    store = new("once")
    store.create("a", bytes(10))
    store.create("b", bytes(11))
    assert store.read("a") == bytes(10)
    with pytest.raises(CorruptObject, match="more than 10 bytes"):
        store.read("b")
    assert store.read("b", 0, 11) == bytes(11)


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
    monkeypatch.setattr("tempfile.tempdir", "/dev/full")
    with pytest.raises(StoreRefused, match="set TMPDIR") as caught:
        store.open_write("a/b").write(bytes(2000))
    assert type(caught.value) is StoreRefused, "it is the writer's fault, not the store's"


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
        (OSError(f"Forbidden: {SECRET}"), StoreRefused, "no right to do this"),
        (with_status(401), StoreRefused, "refuses the credentials"),
        (with_status(403), StoreRefused, "no right to do this"),
        (with_status(404), ObjectMissing, "there is no object"),
        (with_status(418), StoreRefused, "status 418"),
        (with_status(503), StoreUnavailable, "answered 503"),
        (with_status(408), StoreUnavailable, "answered 408"),
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


def test_a_condition_that_nobody_set_is_refused_with_the_cure(fails):
    """Azure answers 412 to whoever deletes or replaces an object that has a lease."""
    for use in (lambda store: store.delete("a"), lambda store: store.put("a", b"")):
        with pytest.raises(StoreRefused, match=r"condition does not hold \(412\); end the lease"):
            use(fails(with_status(412)))


def test_a_missing_bucket_shows_when_something_is_written(fails):
    with pytest.raises(NodeMissing, match="bucket or container does not exist"):
        fails(FileNotFoundError(SECRET)).create("a", b"")


def test_options_that_an_implementation_refuses_are_not_shown_and_those_that_the_log_sets_are_refused(monkeypatch):
    def refuse(self, **options):
        raise ValueError(f"bad {options}")

    for name in ("use_listings_cache", "asynchronous", "skip_instance_cache"):
        with pytest.raises(InvalidOption, match=name):
            new("once", **{name: True}).read("a")
    monkeypatch.setattr(fsspec_kinds.Once, "__init__", refuse)
    with pytest.raises(StoreRefused, match=r"refuses its options or credentials \(ValueError\)") as caught:
        new("once", account_key=SECRET).read("a")
    assert SECRET not in repr(caught.value)


def test_other_names_of_schemes_mean_the_same():
    assert absolute_url("gcs://bucket/log/") == "gs://bucket/log"
    assert absolute_url("AZ://box/log") == absolute_url("abfss://box/log") == "abfs://box/log"
    options = StorageOptions.given({"az://box": {"account_name": "a"}})
    assert options.at("abfs://box/log") == {"account_name": "a"}


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


def test_what_implementations_log_of_errors_is_left_out(caplog):
    new("once").exists("a")
    logging.getLogger("gcsfs").error("out of retries: %s", SECRET)
    assert SECRET not in caplog.text


def test_an_occupied_key_whose_writer_is_not_told_stays_in_doubt(monkeypatch):
    store = new("loses")

    def vanish(*_):
        raise ObjectMissing(store.url, "a/b")

    monkeypatch.setattr(store, "read", vanish)
    monkeypatch.setattr(fsspec_kinds.LosesAnswers, "losses", 1)
    with pytest.raises(StoreUnavailable, match="may have written a/b"):
        store.create("a/b", b"mine")
