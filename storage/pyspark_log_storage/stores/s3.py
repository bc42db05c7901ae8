"""A store in a bucket of S3, or of a server that speaks its protocol, below a prefix.

    s3://<bucket>/<prefix>/<key>            the objects

An object is created by a PUT with `If-None-Match: *`, which fails if the key exists; large ones are multipart uploads
(`s3_upload`). S3 lists, reads and writes consistently, stores an object whole or not at all, and durably before it
answers. It keeps copies and checksums of its own, so journals need no second copy there (`spare`).
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from pyspark_log_storage.stores import keys
from pyspark_log_storage.stores.s3_client import Answered
from pyspark_log_storage.stores.s3_objects import S3Objects
from pyspark_log_storage.stores.s3_upload import UNFINISHED_SECONDS, S3Writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_NOT_IN_RANGE = 416
_UNORDERED = "--x-s3"
"""The end of the names of directory buckets (S3 Express), which list in no order and cannot begin after a key."""


class S3Store(S3Objects):
    """The objects below a prefix of a bucket. Safe for any number of processes and threads."""

    is_object_store = True

    def create_unflushed(self, key: str, data: bytes) -> bool:
        return self.create(key, data)

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        keys.check_key(self.url, key)
        if length == 0:
            self.size(key)
            return b""
        arguments: dict[str, Any] = {}
        if start or length is not None:
            end = "" if length is None else start + length - 1
            arguments["Range"] = f"bytes={start}-{end}"
        try:
            data: bytes = self.call("get_object", key, {_NOT_IN_RANGE}, **arguments)["Body"]
        except Answered:
            return b""
        return data

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        keys.check_prefix(self.url, prefix)
        if self.bucket.endswith(_UNORDERED):
            yield from sorted(key for key in self._keys(prefix) if key > after)
        elif after > prefix:
            yield from self._keys(prefix, StartAfter=f"{self._base}{after}")
        else:
            yield from self._keys(prefix)

    def _keys(self, prefix: str, **arguments: Any) -> Iterator[str]:
        for page in self._pages(prefix, **arguments):
            for each in page.get("Contents", ()):
                key = each["Key"].removeprefix(self._base)
                if keys.is_key(key):
                    yield key

    def _pages(self, prefix: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        while True:
            page = self.call("list_objects_v2", prefix, as_prefix=True, **arguments)
            yield page
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    def folders(self, prefix: str) -> Iterator[str]:
        keys.check_prefix(self.url, prefix)
        whole = f"{self._base}{prefix}"
        found = (
            each["Prefix"].removeprefix(whole).removesuffix("/")
            for page in self._pages(prefix, Delimiter="/")
            for each in page.get("CommonPrefixes", ())
        )
        names = (name for name in found if keys.is_key(f"{prefix}{name}"))
        yield from sorted(names)  # S3 sorts them with the "/" at their ends

    def delete(self, key: str) -> None:
        keys.check_key(self.url, key)
        self.call("delete_object", key)

    def remove_folders(self, prefix: str) -> None:
        keys.check_prefix(self.url, prefix)  # folders are but parts of keys

    def open_write(self, key: str, *, durable: bool = True, replace: bool = False) -> S3Writer:
        del durable  # whatever S3 has answered for is durable
        keys.check_key(self.url, key)
        return S3Writer(self, key, replace=replace)

    def delete_unfinished(self, *, dry_run: bool = False) -> Sequence[str]:
        """Abort the multipart uploads that were begun more than `UNFINISHED_SECONDS` ago, by the server's clock.

        S3 does not tell whether a writer is alive. One that is, after so long, gets an error with its next part.
        """
        found = []
        arguments: dict[str, Any] = {}
        while True:
            page = self.call("list_multipart_uploads", "", as_prefix=True, **arguments)
            now = parsedate_to_datetime(page["ResponseMetadata"]["HTTPHeaders"]["date"])
            for each in page.get("Uploads", ()):
                key = each["Key"].removeprefix(self._base)
                if keys.is_key(key) and (now - each["Initiated"]).total_seconds() > UNFINISHED_SECONDS:
                    found.append(f"{key} (upload {each['UploadId']})")
                    if not dry_run:
                        self.call("abort_multipart_upload", key, {404}, UploadId=each["UploadId"])
            if not page.get("IsTruncated"):
                return found
            arguments = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}
