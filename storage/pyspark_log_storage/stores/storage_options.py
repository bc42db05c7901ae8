"""Storage options: the credentials and settings of object stores, with the names that s3fs and pandas use.

    {"key": "...", "secret": "...", "endpoint_url": "http://localhost:9000"}
    {"profile": "prod", "s3://eu-bucket": {"profile": "eu"}}

An entry whose name is a URL is for the stores below it, and takes precedence over the others; one whose name ends with
"://" is for all stores of its scheme. Options travel to tasks, and are never shown: neither `repr` nor an error has a
value.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.stores import schemes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OPTION = "storage_options"
ENVIRONMENT_VARIABLE = "PYSPARK_LOG_STORAGE_OPTIONS"
"""Has the options of those who give none, as JSON."""


class StorageOptions(msgspec.Struct, frozen=True):
    """The options of all stores of a cluster. Hashable, so that logs and clients can be cached by them."""

    text: str = "{}"
    """JSON, with its names sorted."""

    @classmethod
    def given(cls, options: Mapping[str, Any]) -> StorageOptions:
        """Return options from a dict. Raises `InvalidOption` if a value is nothing that JSON can hold."""
        try:
            return cls(msgspec.json.encode(dict(options), order="sorted").decode())
        except (TypeError, ValueError):
            message = f"option {OPTION} has a value of a wrong type; give text, numbers, booleans and dicts of them"
            raise InvalidOption(OPTION, message) from None

    @classmethod
    def parse(cls, text: str) -> StorageOptions:
        """Return the options in a JSON object. Raises `InvalidOption`, without the text."""
        try:
            found = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            found = None
        if not isinstance(found, dict):
            example = '{"key": "...", "secret": "...", "endpoint_url": "http://localhost:9000"}'
            raise InvalidOption(OPTION, f"option {OPTION} is not a JSON object; write it as {example}")
        return cls.given(found)

    @classmethod
    def of_environment(cls) -> StorageOptions:
        """Return the options in the environment variable, or none."""
        text = os.environ.get(ENVIRONMENT_VARIABLE, "").strip()
        return cls.parse(text) if text else cls()

    def at(self, url: str) -> dict[str, Any]:
        """Return the options of the store at a URL: the general ones, and over them those of URLs above it."""
        options: dict[str, Any] = msgspec.json.decode(self.text)
        places = {_canonical(each): options.pop(each) for each in [name for name in options if "://" in name]}
        for place in sorted(places, key=len):
            if place == url or url.startswith(place if place.endswith("://") else f"{place}/"):
                if not isinstance(places[place], dict):
                    raise InvalidOption(OPTION, f"option {OPTION}: the value for {place} is not an object of options")
                options |= places[place]
        return options

    def only_of(self, url: str) -> StorageOptions:
        """Return the options of the store at a URL, without those of others: two stores may share a connection."""
        return StorageOptions.given(self.at(url))

    def __repr__(self) -> str:
        return "StorageOptions(...)"

    def __rich_repr__(self) -> Iterator[str]:  # type: ignore[override]
        yield "..."


def _canonical(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{schemes.canonical(scheme)}://{rest.rstrip('/')}"


NO_OPTIONS = StorageOptions()
