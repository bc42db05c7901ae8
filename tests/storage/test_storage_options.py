"""Storage options: whose are whose, and that nobody sees them."""

import pickle

import pytest

from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.stores.storage_options import ENVIRONMENT_VARIABLE, StorageOptions

BOTH = {"key": "all", "secret": "canary", "s3a://eu/": {"key": "eu"}, "s3://eu/deep": {"token": "t"}}


def test_the_options_of_a_url_take_precedence_below_it_and_not_for_a_name_that_begins_alike():
    options = StorageOptions.given(BOTH)
    assert options.at("s3://us/log") == options.at("s3://eu2/log") == {"key": "all", "secret": "canary"}
    assert options.at("s3://eu") == options.at("s3://eu/deeper") == {"key": "eu", "secret": "canary"}
    assert options.at("s3://eu/deep/log") == {"key": "eu", "secret": "canary", "token": "t"}


def test_the_options_of_a_scheme_are_for_all_its_stores():
    options = StorageOptions.given({"s3a://": {"key": "of S3"}, "gcs://": {"token": "t"}, "s3://eu": {"key": "eu"}})
    assert options.at("s3://us/log") == {"key": "of S3"}
    assert options.at("s3://eu/log") == {"key": "eu"}
    assert options.at("gs://box/log") == {"token": "t"}
    assert options.at("abfs://box/log") == {}


def test_options_never_show_their_values():
    options = StorageOptions.given(BOTH)
    assert "canary" not in f"{options!r} {options} {[options]}"


def test_options_travel_to_tasks():
    options = StorageOptions.given(BOTH)
    assert pickle.loads(pickle.dumps(options)) == options
    assert len({options, StorageOptions.given(dict(reversed(BOTH.items())))}) == 1


@pytest.mark.parametrize("text", ["canary", '"canary"', '["canary"]', '{"secret": canary}'])
def test_what_is_no_object_is_refused_without_being_shown(text):
    with pytest.raises(InvalidOption, match="not a JSON object") as caught:
        StorageOptions.parse(text)
    assert "canary" not in str(caught.value)


def test_a_value_that_cannot_travel_is_refused_without_being_shown():
    class Canary: ...

    with pytest.raises(InvalidOption, match="wrong type"):
        StorageOptions.given({"session": Canary()})


def test_options_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, '{"key": "k"}')
    assert StorageOptions.of_environment().at("s3://any") == {"key": "k"}
    monkeypatch.delenv(ENVIRONMENT_VARIABLE)
    assert StorageOptions.of_environment() == StorageOptions()
