"""A store in a bucket of S3, or of a server that speaks its protocol, below a prefix.

    s3://<bucket>/<prefix>/<key>            the objects

An object is created by a PUT with `If-None-Match: *`, which fails if the key exists. If a PUT has no answer, it may
have had its effect. It is repeated, here and invisibly: HTTP clients and proxies repeat a PUT whose connection was
lost. So the existence of a key proves nothing: a nonce in the object's metadata tells whose object it is.

Large objects are multipart uploads, in bounded memory (`S3Writer`). S3 lists, reads and writes consistently, stores an
object whole or not at all, and durably before it answers.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    InvalidOption,
    LogError,
    ObjectMissing,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from pyspark_log_storage.stores.s3_client import Answered, client_of, known_client
from pyspark_log_storage.stores.storage_options import NO_OPTIONS
from pyspark_log_storage.stores.store import check_key, check_prefix, is_key

# ruff: isort: split
# If s3fs is missing, the client says so; tenacity, which the next one imports, comes with it.
from pyspark_log_storage.stores.attempts import in_doubt, pauses, result_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from concurrent.futures import Future

    from pyspark_log_storage.stores.storage_options import StorageOptions

NONCE = "pyspark-log-nonce"
"""The metadata that tells the attempts of one writer from those of others."""
_OCCUPIED = 412
_CONFLICT = 409
CONFLICTS_MAX = 8
"""How often `create` tries, with pauses, while another writer is creating the same object and does not finish."""
PART_BYTES = 8 * 1024 * 1024
PARTS_OF_ONE_SIZE = 1000
"""After so many parts the next are larger by `PART_BYTES`: 10,000 parts are 430 GB."""
PARTS_PENDING_MAX = 2
"""How many parts may be on their way. With the one that is filled, a writer holds three."""
UNFINISHED_SECONDS = 24 * 60 * 60
"""The age at which an upload counts as abandoned. A file that old is not sequenced any more (orphan.retention.ms)."""
_NOT_FOUND = 404
_UNSUPPORTED = 501
_NOT_IN_RANGE = 416
_UNORDERED = "--x-s3"
"""The end of the names of directory buckets (S3 Express), which list in no order and cannot begin after a key."""


class S3Store:
    """The objects below a prefix of a bucket. Safe for any number of processes and threads."""

    is_object_store = True

    def __init__(self, url: str, options: StorageOptions = NO_OPTIONS) -> None:
        """`url` is canonical. Raises `InvalidOption` if it names no bucket. Connects with the first call."""
        self.url = url
        self._options = options
        self.bucket, _, prefix = url.partition("://")[2].partition("/")
        if not self.bucket:
            raise InvalidOption("path", f"{url!r} names no bucket; write s3://BUCKET/FOLDER")
        self._base = f"{prefix}/" if prefix else ""

    def create(self, key: str, data: bytes) -> bool:
        check_key(self.url, key)
        nonce, body = uuid.uuid4().hex, bytes(data)
        expects, is_occupied = {_OCCUPIED, _CONFLICT}, False
        for pause in pauses(CONFLICTS_MAX):
            time.sleep(pause)
            try:
                try:
                    self.call("put_object", key, expects, Body=body, Metadata={NONCE: nonce}, IfNoneMatch="*")
                    return True
                except Answered:
                    is_occupied = True
                    found = self.nonce_of(key)
            except StoreError as error:
                raise (in_doubt(error) if is_occupied else error) from None  # what is there may be this call's
            if found is not None:
                return found == nonce
        raise StoreUnavailable(self.url, key, f"other writers were creating {key} in {self.url} again and again; retry")

    def put(self, key: str, data: bytes) -> None:
        check_key(self.url, key)
        self.call("put_object", key, Body=bytes(data))

    def create_unflushed(self, key: str, data: bytes) -> bool:
        return self.create(key, data)

    def exists(self, key: str) -> bool:
        try:
            self.size(key)
        except ObjectMissing:
            return False
        return True

    def size(self, key: str) -> int:
        check_key(self.url, key)
        return int(self.call("head_object", key)["ContentLength"])

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        check_key(self.url, key)
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
        check_prefix(self.url, prefix)
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
                if is_key(key):
                    yield key

    def _pages(self, prefix: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        while True:
            page = self.call("list_objects_v2", prefix, as_prefix=True, **arguments)
            yield page
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    def folders(self, prefix: str) -> Iterator[str]:
        check_prefix(self.url, prefix)
        whole = f"{self._base}{prefix}"
        found = (
            each["Prefix"].removeprefix(whole).removesuffix("/")
            for page in self._pages(prefix, Delimiter="/")
            for each in page.get("CommonPrefixes", ())
        )
        names = (name for name in found if is_key(f"{prefix}{name}"))
        yield from sorted(names)  # S3 sorts them with the "/" at their ends

    def delete(self, key: str) -> None:
        check_key(self.url, key)
        self.call("delete_object", key)

    def remove_folders(self, prefix: str) -> None:
        check_prefix(self.url, prefix)  # folders are but parts of keys

    def open_write(self, key: str, *, durable: bool = True, replace: bool = False) -> S3Writer:
        del durable  # whatever S3 has answered for is durable
        check_key(self.url, key)
        return S3Writer(self, key, replace=replace)

    def clock_ms(self) -> int | None:
        answer = self.call("head_object", layout.MARKER)  # any object that there is: each answer has the server's time
        date = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        return int(date.timestamp() * 1000)

    def delete_unfinished(self, *, dry_run: bool = False) -> Sequence[str]:
        """Abort the multipart uploads that were begun more than `UNFINISHED_SECONDS` ago, by the server's clock.

        S3 does not tell whether a writer is alive. One that is, after so long, gets an error with its next part.
        Uploads of other names are somebody else's: a log may be at the root of a bucket that others use.
        """
        found = []
        arguments: dict[str, Any] = {}
        while True:
            page = self.call("list_multipart_uploads", "", as_prefix=True, **arguments)
            now = parsedate_to_datetime(page["ResponseMetadata"]["HTTPHeaders"]["date"])
            for each in page.get("Uploads", ()):
                key = each["Key"].removeprefix(self._base)
                if layout.is_written_in_parts(key) and (now - each["Initiated"]).total_seconds() > UNFINISHED_SECONDS:
                    found.append(f"{key} (upload {each['UploadId']})")
                    if not dry_run:
                        self.call("abort_multipart_upload", key, {_NOT_FOUND}, UploadId=each["UploadId"])
            if not page.get("IsTruncated"):
                return found
            arguments = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}

    def is_versioned(self) -> bool:
        """Return whether the bucket is versioned; False if the server does not tell."""
        try:
            client = client_of(self._options, self.url)
            found = client.call(self.url, "", "get_bucket_versioning", Bucket=self.bucket)
        except StoreError:
            return False
        return bool(found.get("Status") == "Enabled")

    def nonce_of(self, key: str) -> str | None:
        """Return the nonce of the attempt that made an object, "" if it has none, or None if there is no object."""
        try:
            return str(self.call("head_object", key)["Metadata"].get(NONCE, ""))
        except ObjectMissing:
            return None

    def call(
        self, method: str, key: str, expects: Collection[int] = (), *, as_prefix: bool = False, **arguments: Any
    ) -> Any:
        """Return the answer to a call for a key, or for a prefix; see `S3Client.call`.

        After a refused login it is repeated once with the credentials as they are now: somebody may have renewed them.
        """
        client = known_client(self._options, self.url)
        try:
            return result_of(self.start(method, key, expects, as_prefix=as_prefix, **arguments))
        except StoreRefused:
            if known_client(self._options, self.url) is client:  # None: its credentials were just read
                raise
        return result_of(self.start(method, key, expects, as_prefix=as_prefix, **arguments))

    def start(
        self, method: str, key: str, expects: Collection[int] = (), *, as_prefix: bool = False, **arguments: Any
    ) -> Future[Any]:
        """Start a call; see `call`."""
        arguments["Prefix" if as_prefix else "Key"] = f"{self._base}{key}"
        client = client_of(self._options, self.url)
        return client.start(self.url, key, method, expects, Bucket=self.bucket, **arguments)


class S3Writer:
    """An object that is uploaded while it is written, and becomes visible when the upload is complete.

    An object that fits in one part is one PUT. The parts of a larger one are sent in the background while the next is
    filled. At 8 MiB they are large enough for S3 (5 MiB at least), and grow so that their number (10,000 at most)
    suffices. Used by one thread.
    """

    def __init__(self, store: S3Store, key: str, *, replace: bool) -> None:
        self._store = store
        self._key = key
        self._replace = replace
        self._buffer = bytearray()
        self._upload = ""
        """The id of the multipart upload, if there is one."""
        self._nonce = uuid.uuid4().hex
        self._etags: list[str] = []
        self._pending: list[Future[Any]] = []
        self._open = True

    def write(self, *pieces: bytes) -> None:
        assert self._open, "written to after its end"
        try:
            for piece in pieces:
                view = memoryview(piece).cast("B")
                while view.nbytes:
                    if len(self._buffer) == self._part_bytes:
                        self._send_part()
                    room = self._part_bytes - len(self._buffer)
                    self._buffer += view[:room]
                    view = view[room:]
        except BaseException:
            self.discard()  # a retry would append to the part of a piece that was written
            raise

    def close(self) -> None:
        assert self._open, "closed after its end"
        try:
            if self._upload:
                self._send_part()
                self._await_parts(0)
                created = self._complete()
                self._upload = "" if created else self._upload
            elif self._replace:
                self._store.put(self._key, bytes(self._buffer))
                created = True
            else:
                created = self._store.create(self._key, bytes(self._buffer))
        finally:
            self.discard()
        if not created:
            url = self._store.url
            raise StoreError(url, self._key, f"{self._key!r} already exists in {url}; names are never reused")

    def discard(self) -> None:
        self._open = False
        self._buffer = bytearray()
        pending, self._pending = self._pending, []
        for part in pending:
            part.cancel()
        if self._upload:
            self._abort()

    @property
    def _part_bytes(self) -> int:
        return PART_BYTES * (1 + (len(self._etags) + len(self._pending)) // PARTS_OF_ONE_SIZE)

    def _send_part(self) -> None:
        """Upload what has been gathered, in the background, when fewer parts than the most are on their way."""
        if not self._upload:
            begun = self._store.call("create_multipart_upload", self._key, Metadata={NONCE: self._nonce})
            self._upload = begun["UploadId"]
        self._await_parts(PARTS_PENDING_MAX - 1)
        number = len(self._etags) + len(self._pending) + 1
        body, self._buffer = bytes(self._buffer), bytearray()
        names: dict[str, Any] = {"UploadId": self._upload, "PartNumber": number}
        self._pending.append(self._store.start("upload_part", self._key, {_NOT_FOUND}, Body=body, **names))

    def _await_parts(self, most: int) -> None:
        """Wait until at most so many parts are on their way."""
        while len(self._pending) > most:
            try:
                self._etags.append(result_of(self._pending[0])["ETag"])
            except Answered:
                url = self._store.url
                message = f"{url} ended the upload of {self._key}: it is too old, or the bucket's rules ended it; write"
                raise StoreUnavailable(url, self._key, f"{message} it again") from None
            del self._pending[0]

    def _complete(self) -> bool:
        """Make the object visible. Return whether it is this writer's, and no other was there before.

        The condition protects against a race, on servers that know it. On others the look before is the protection,
        which suffices because no other process uses the key.
        """
        if not self._replace and self._store.exists(self._key):
            return False
        parts = [{"ETag": etag, "PartNumber": number} for number, etag in enumerate(self._etags, 1)]
        arguments: dict[str, Any] = {"UploadId": self._upload, "MultipartUpload": {"Parts": parts}}
        condition: dict[str, Any] = {} if self._replace else {"IfNoneMatch": "*"}
        expects = {_OCCUPIED, _NOT_FOUND, _UNSUPPORTED}
        for conditions in (condition, {}):
            try:
                self._store.call("complete_multipart_upload", self._key, expects, **arguments, **conditions)
                return True
            except Answered as answer:
                if self._store.nonce_of(self._key) == self._nonce:
                    return True  # an earlier attempt, whose answer was lost
                if answer.status == _OCCUPIED:
                    return False
                if answer.status != _UNSUPPORTED:
                    break
        url = self._store.url
        message = f"cannot complete the upload of {self._key} to {url}: it was ended meanwhile; write it again"
        raise StoreUnavailable(url, self._key, message)

    def _abort(self) -> None:
        upload, self._upload = self._upload, ""
        with contextlib.suppress(LogError, Answered):  # `delete_unfinished` aborts it later
            self._store.call("abort_multipart_upload", self._key, {_NOT_FOUND}, UploadId=upload)
