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
        ("/data//x/../log/", "/data/log"),
        ("//data/log", "/data/log"),
        ("file:/data/log", "/data/log"),
        ("FILE:///data/log/", "/data/log"),
        ("file://localhost/data/log", "/data/log"),
        ("file:///data/a%20b", "/data/a b"),
        ("file:///data/a#b?c", "/data/a#b?c"),
        ("/data/a%20b", "/data/a%20b"),
        ("S3A://Bucket/Log/", "s3://Bucket/Log"),
        ("gcs://bucket/log/", "gs://bucket/log"),
        ("AZ://box/log", "abfs://box/log"),
        ("abfss://box/log", "abfs://box/log"),
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
        ("/a/log,FILE:///b/log", ("/a/log", "/b/log")),
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
    assert is_same_place(a, link)
    assert is_same_place(none, none)
    assert not is_same_place(a, b)
    assert not is_same_place(a, none)
    assert not is_same_place("s3://bucket/log", "s3://bucket/log2")


def test_a_relative_path_is_below_the_working_folder_and_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    for path in ("log", "./log", "x/../log", "file:log"):
        assert absolute_url(path) == os.path.join(os.getcwd(), "log")
    assert absolute_url("~/log") == "/home/ada/log"
    store = open_store(absolute_url("log"))
    assert isinstance(store, LocalStore)
    assert list(tmp_path.iterdir()) == [], "to open it touches nothing"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "empty"),
        ("file://", "empty"),
        ("/a,,/b", "empty"),
        ("/data\0", "it is not UTF-8 text"),
        ("/data/\udcff", "it is not UTF-8 text"),
        ("/data/rain,snow", "'snow' is none; write each as /FOLDER.* cannot have a comma"),
        ("data/rain,/snow", "'data/rain' is none"),
        ("10.0.0.1:9092,10.0.0.2:9092", "pyspark_log has no server; give the log's folder"),
        ("file://data/log", "write file:///data/log for a folder here"),
        ("hdfs://host/log", "hdfs://"),
        ("memory://log", "in the memory of one process"),
        ("local://log", "write a folder as"),
        ("simplecache::gs://bucket/log", "cannot be chained"),
        ("unheard-of://bucket/log", "no scheme that fsspec knows"),
        ("once://", "BUCKET"),
        ("s3://", "BUCKET"),
        ("s3://key:canary-4711@bucket/log", "a login before an @"),
        ("s3://bucket/log?versionId=1", "without [?] and #"),
        ("s3://b/../x", "BUCKET/FOLDER"),
        ("abfs://container@account.dfs.core.windows.net/log", "account_name in storage_options"),
        ("github://org/repo", "two processes could create the same one"),
    ],
)
def test_an_address_at_which_there_can_be_no_log_is_refused(path, why):
    with pytest.raises(InvalidOption, match=why) as caught:
        open_store(absolute_urls(path)[0])
    assert caught.value.option == "path"
    assert "canary-4711" not in str(caught.value)


@pytest.mark.parametrize("path", ["dbfs:/data/log", "s3:/bucket/log", "S3a:/bucket", "C:/data/log"])
def test_a_scheme_with_one_slash_is_no_folder_below_the_working_one(path):
    with pytest.raises(InvalidOption, match="neither a folder nor a URL"):
        absolute_url(path)
    assert absolute_url(f"./{path}") == os.path.join(os.getcwd(), path)


def test_the_login_in_a_file_url_is_not_shown():
    with pytest.raises(InvalidOption, match="names the host 'nas'; write file:///nas/log for a folder here") as caught:
        absolute_url("file://user:geheim@nas/log")
    assert "geheim" not in caught.value.message


@given(path=st.text("abc/.~ %#?", min_size=1).filter(lambda path: path.strip()))
def test_an_address_stays_as_it_is_once_it_is_absolute(path):
    assert absolute_url(absolute_url(path)) == absolute_url(path)
