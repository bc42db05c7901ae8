"""Single objects below a prefix of an S3 bucket: create, replace and find one, and the calls for this.

If a PUT has no answer, it may have had its effect. It is repeated, here and invisibly: HTTP clients and proxies repeat
a PUT whose connection was lost. So the existence of a key proves nothing: a nonce in the object's metadata tells whose
object it is.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from pyspark_log_storage.errors import InvalidOption, ObjectMissing, StoreUnavailable
from pyspark_log_storage.stores import keys
from pyspark_log_storage.stores.attempts import result_of
from pyspark_log_storage.stores.s3_client import Answered, client_of
from pyspark_log_storage.stores.storage_options import NO_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Collection
    from concurrent.futures import Future

    from pyspark_log_storage.stores.storage_options import StorageOptions

NONCE = "pyspark-log-nonce"
"""The metadata that tells the attempts of one writer from those of others."""
OCCUPIED = 412
CONFLICT = 409
CONFLICTS_MAX = 20
"""How often `create` tries again because another writer is creating the same object, and does not finish."""


class S3Objects:
    """The objects below a prefix of a bucket, one by one. Safe for any number of processes and threads."""

    def __init__(self, url: str, options: StorageOptions = NO_OPTIONS) -> None:
        """`url` is canonical. Raises `InvalidOption` if it names no bucket. Connects with the first call."""
        self.url = url
        self._options = options
        self.bucket, _, prefix = url.partition("://")[2].partition("/")
        if not self.bucket:
            raise InvalidOption("path", f"{url!r} names no bucket; write s3://BUCKET/FOLDER")
        self._base = f"{prefix}/" if prefix else ""

    def create(self, key: str, data: bytes) -> bool:
        keys.check_key(self.url, key)
        nonce, body = uuid.uuid4().hex, bytes(data)
        for _ in range(CONFLICTS_MAX):
            try:
                expects = {OCCUPIED, CONFLICT}
                self.call("put_object", key, expects, Body=body, Metadata={NONCE: nonce}, IfNoneMatch="*")
                return True
            except Answered:
                found = self.nonce_of(key)
                if found is not None:
                    return found == nonce
        raise StoreUnavailable(self.url, key, f"other writers were creating {key} in {self.url} again and again; retry")

    def put(self, key: str, data: bytes) -> None:
        keys.check_key(self.url, key)
        self.call("put_object", key, Body=bytes(data))

    def exists(self, key: str) -> bool:
        try:
            self.size(key)
        except ObjectMissing:
            return False
        return True

    def size(self, key: str) -> int:
        keys.check_key(self.url, key)
        return int(self.call("head_object", key)["ContentLength"])

    def nonce_of(self, key: str) -> str | None:
        """Return the nonce of the attempt that made an object, "" if it has none, or None if there is no object."""
        try:
            return str(self.call("head_object", key)["Metadata"].get(NONCE, ""))
        except ObjectMissing:
            return None

    def call(
        self, method: str, key: str, expects: Collection[int] = (), *, as_prefix: bool = False, **arguments: Any
    ) -> Any:
        """Return the answer to a call for a key, or for a prefix; see `Client.call`."""
        return result_of(self.start(method, key, expects, as_prefix=as_prefix, **arguments))

    def start(
        self, method: str, key: str, expects: Collection[int] = (), *, as_prefix: bool = False, **arguments: Any
    ) -> Future[Any]:
        """Start a call; see `call`."""
        arguments["Prefix" if as_prefix else "Key"] = f"{self._base}{key}"
        client = client_of(self._options, self.url)
        return client.start(self.url, key, method, expects, Bucket=self.bucket, **arguments)
