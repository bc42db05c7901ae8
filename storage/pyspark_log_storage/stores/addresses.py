"""Addresses of stores: their canonical form, and the store at each."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.stores import schemes

if TYPE_CHECKING:
    from pyspark_log_storage.stores.storage_options import StorageOptions
    from pyspark_log_storage.stores.store import Store

_HOST_AND_PORT = re.compile(r"[\w.-]+:[0-9]+")
"""What Kafka's bootstrap servers look like. A folder of such a name can be given as `./NAME`."""
_BEGINS_AN_ADDRESS = re.compile(r"[/~]|\.\.?/|file:|[A-Za-z][A-Za-z0-9+.-]*://", re.IGNORECASE)
"""How each of several addresses begins: the parts of a folder's name with a comma do not."""
_SCHEME_AND_PATH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/.*", re.DOTALL)
"""What Hadoop's `dbfs:/data`, a mistyped `s3:/bucket` and a path of Windows look like."""


def absolute_url(path: str) -> str:
    """Return the canonical address of a store.

    `/data/log`, `file:/data/log` and `file:///data/log` all mean the folder `/data/log`. A relative path is relative to
    the working folder of this process, so the driver calls this, not a task. Schemes have other names (`schemes`).
    Raises `InvalidOption` for an empty path, for Kafka's `HOST:PORT`, and for a scheme with one slash: as a folder it
    would be relative.

    >>> absolute_url("file:///data/log/"), absolute_url("s3a://bucket/log")
    ('/data/log', 's3://bucket/log')
    """
    scheme, separator, rest = path.partition("://")
    if separator and scheme.lower() != "file":
        _check_bucket(rest, schemes.canonical(scheme))
        return f"{schemes.canonical(scheme)}://{rest.rstrip('/')}"
    if path.lower().startswith("file:"):
        path = _path_of_file_url(path)
    if not path.strip():
        raise InvalidOption("path", "the address of a store is empty; give a folder or a URL, for example /data/log")
    if _HOST_AND_PORT.fullmatch(path.strip()):
        message = (
            f"option 'path' is {path!r}, a host and a port, but pyspark_log has no server; "
            "give the log's folder, for example /data/log"
        )
        raise InvalidOption("path", message)
    if _SCHEME_AND_PATH.fullmatch(path.strip()):
        scheme, _, rest = path.strip().partition(":/")
        message = (
            f"option 'path' is {path!r}, which is neither a folder nor a URL; write {scheme}://BUCKET/FOLDER for a "
            f"bucket, or a folder as it is mounted here, for example /{scheme}/{rest.lstrip('/')}"
        )
        raise InvalidOption("path", message)
    if "\0" in path or any("\ud800" <= each <= "\udfff" for each in path):  # bytes that are not UTF-8
        raise InvalidOption("path", f"{path!r} is not a valid store address: it is not UTF-8 text; use another path")
    absolute = os.path.abspath(os.path.expanduser(path))
    return "/" + absolute.lstrip("/")  # `abspath` keeps two leading slashes


def _check_bucket(rest: str, scheme: str) -> None:
    """Raise `InvalidOption` for an address with a login, or with what is no part of a key. Addresses are stored."""
    if "@" in rest.partition("/")[0]:
        if scheme == "abfs" and ":" not in rest.partition("@")[0]:
            message = (
                "option 'path' names an account; write abfs://CONTAINER/FOLDER, and account_name in storage_options"
            )
            raise InvalidOption("path", message)
        message = "option 'path' has a login before an @, which would be stored; give it in storage_options instead"
        raise InvalidOption("path", message)
    if {"", ".", ".."} & set(rest.rstrip("/").split("/")) or "?" in rest or "#" in rest or not rest.isprintable():
        message = (
            f"option 'path' ends with {rest.partition('?')[0]!r}; write it as {scheme}://BUCKET/FOLDER, without ? and #"
        )
        raise InvalidOption("path", message)


def is_same_place(url: str, other: str) -> bool:
    """Return whether two canonical addresses name one place: they are equal, or lead to the same folder.

    A symbolic link and a bind mount are the folder to which they lead; a copy of it is another one.
    """
    if url == other:
        return True
    if not (url.startswith("/") and other.startswith("/")):
        return False
    try:
        return os.path.samefile(url, other)
    except OSError:
        return False  # one of them does not exist here


def absolute_urls(path: str) -> tuple[str, ...]:
    """Return the canonical addresses in a comma-separated `path`, without duplicates.

    So the path of a folder cannot contain a comma; what looks like one that does is refused. Raises `InvalidOption`.
    """
    if "," not in path:
        return (absolute_url(path),)
    parts = [each.strip() for each in path.split(",")]
    urls = tuple(dict.fromkeys(map(absolute_url, parts)))
    for each in parts:
        if not _BEGINS_AN_ADDRESS.match(each):
            message = (
                f"option 'path' is {path!r}, several addresses because it has a comma, and {each!r} is none; write "
                "each as /FOLDER, ./FOLDER or a URL. The name of a log's folder cannot have a comma"
            )
            raise InvalidOption("path", message)
    return urls


def _path_of_file_url(url: str) -> str:
    """Return the path of a `file:` URL, in which `#` and `?` are plain characters, as in Hadoop."""
    rest = url[len("file:") :]
    if rest.startswith("//"):
        host, slash, tail = rest[2:].partition("/")
        rest = slash + tail
        if host not in {"", "localhost"}:
            host = host.rpartition("@")[2]  # a login is not shown
            message = f"option 'path' names the host {host!r}; write file:///{host}{rest} for a folder here"
            raise InvalidOption("path", message)
    return unquote(rest)


def open_store(url: str, options: StorageOptions | None = None) -> Store:
    """Return the store at `url`, a canonical address. Touches nothing yet.

    `options` are those of the environment unless given. Raises `InvalidOption` for a kind of store that this version
    does not support, or whose client is not installed.
    """
    if "://" in url:
        try:
            from pyspark_log_storage.stores.bucket import BucketStore
        except ImportError as error:
            raise schemes.missing(url.partition("://")[0], "fsspec", error) from None
        from pyspark_log_storage.stores.storage_options import StorageOptions

        return BucketStore(url, StorageOptions.of_environment() if options is None else options)
    from pyspark_log_storage import layout
    from pyspark_log_storage.stores.local import LocalStore

    return LocalStore(url, marker=layout.MARKER, first=layout.SELF_TEST)
