"""The addresses of stores."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.stores.addresses import absolute_url, absolute_urls, is_same_place, open_store
from pyspark_log_storage.stores.local import LocalStore


@pytest.mark.parametrize(
    ("given_as", "meant"),
    [
        ("/data/log", "/data/log"),
        ("/data/log/", "/data/log"),
        ("/data//x/../log", "/data/log"),
        ("//data/log", "/data/log"),
        ("file:/data/log", "/data/log"),
        ("file:///data/log", "/data/log"),
        ("file:////data/log", "/data/log"),
        ("FILE:///data/log/", "/data/log"),
        ("file://localhost/data/log", "/data/log"),
        ("file:///data/a%20b", "/data/a b"),
        ("file:///data/a#b?c", "/data/a#b?c"),
        ("/data/a%20b", "/data/a%20b"),
        ("s3://bucket/log/", "s3://bucket/log"),
        ("s3a://bucket/log", "s3://bucket/log"),
        ("S3A://Bucket/Log", "s3://Bucket/Log"),
    ],
)
def test_all_ways_to_write_an_address_are_one(given_as, meant):
    assert absolute_url(given_as) == meant


@pytest.mark.parametrize(
    ("given_as", "meant"),
    [
        ("/a/log", ("/a/log",)),
        ("/a/log,/b/log", ("/a/log", "/b/log")),
        (" /a/log/ , file:///b/log,/a//log", ("/a/log", "/b/log")),
        ("s3a://bucket/log,/a/log", ("s3://bucket/log", "/a/log")),
    ],
)
def test_several_addresses_have_commas_between_them(given_as, meant):
    assert absolute_urls(given_as) == meant
    assert absolute_urls(",".join(meant)) == meant


def test_one_place_may_have_several_addresses(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    a, b, link, none = (str(tmp_path / name) for name in ("a", "b", "link", "none"))
    chaos = absolute_url(f"chaos+file://{none}?seed=1")
    assert is_same_place(a, link)
    assert is_same_place(chaos, none)
    assert is_same_place(none, chaos)
    assert not is_same_place(a, b)
    assert not is_same_place(a, none)
    assert not is_same_place("s3://bucket/log", "s3://bucket/log2")


@pytest.mark.parametrize("path", ["", "/a,", "/a,,/b"])
def test_an_empty_one_of_several_addresses_is_refused(path):
    with pytest.raises(InvalidOption, match="empty"):
        absolute_urls(path)


@pytest.mark.parametrize("path", ["log", "./log", "x/../log", "file:log"])
def test_a_relative_path_is_below_the_working_folder(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute_url(path) == os.path.join(os.getcwd(), "log")


def test_a_tilde_is_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    assert absolute_url("~/log") == "/home/ada/log"


@pytest.mark.parametrize("path", ["dbfs:/data/log", "s3:/bucket/log", "S3a:/bucket", "C:/data/log"])
def test_a_scheme_with_one_slash_is_no_folder_below_the_working_one(path):
    with pytest.raises(InvalidOption, match="neither a folder nor a URL"):
        absolute_url(path)
    assert absolute_url(f"./{path}") == os.path.join(os.getcwd(), path)


@pytest.mark.parametrize("path", ["broker:9092", "10.0.0.1:9092,10.0.0.2:9092"])
def test_the_address_of_a_kafka_broker_is_refused(path):
    with pytest.raises(InvalidOption, match="pyspark_log has no server; give the log's folder"):
        absolute_urls(path)
    assert absolute_url("./broker:9092") == os.path.join(os.getcwd(), "broker:9092")


@pytest.mark.parametrize("path", ["/data\0", "/data/\udcff"])
def test_an_address_that_is_no_text_is_refused(path):
    with pytest.raises(InvalidOption, match="it is not UTF-8 text"):
        absolute_url(path)


@pytest.mark.parametrize("path", ["", "  ", "file:", "file://"])
def test_an_empty_path_is_refused(path):
    with pytest.raises(InvalidOption, match="empty") as caught:
        absolute_url(path)
    assert caught.value.option == "path"


def test_a_file_on_another_host_is_refused_with_what_to_write():
    with pytest.raises(InvalidOption, match="write file:///data/log for a folder here"):
        absolute_url("file://data/log")


def test_the_login_in_a_file_url_is_not_shown():
    with pytest.raises(InvalidOption, match="names the host 'nas'; write file:///nas/log for a folder here") as caught:
        absolute_url("file://user:geheim@nas/log")
    assert "geheim" not in caught.value.message


@given(path=st.text("abc/.~ %#?", min_size=1).filter(lambda path: path.strip()))
def test_an_address_stays_as_it_is_once_it_is_absolute(path):
    assert absolute_url(absolute_url(path)) == absolute_url(path)


def test_an_absolute_path_opens_a_local_store(tmp_path):
    store = open_store(str(tmp_path))
    assert isinstance(store, LocalStore)
    assert store.url == str(tmp_path)


def test_to_open_a_store_touches_nothing(tmp_path):
    open_store(str(tmp_path / "log"))
    assert list(tmp_path.iterdir()) == []


def test_a_kind_of_store_that_there_is_not_is_refused():
    with pytest.raises(InvalidOption, match="hdfs://") as caught:
        open_store("hdfs://host/log")
    assert caught.value.option == "path"
