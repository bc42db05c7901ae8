"""Large objects in S3: multipart uploads, in bounded memory. The object becomes visible when the upload is complete.

An object that fits in one part is one PUT. The parts of a larger one are sent in the background while the next is
filled. At 8 MiB they are large enough for S3 (5 MiB at least), and grow so that their number (10,000 at most) suffices.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any

from pyspark_log_storage.errors import LogError, StoreError, StoreUnavailable
from pyspark_log_storage.stores.attempts import result_of
from pyspark_log_storage.stores.s3_client import Answered
from pyspark_log_storage.stores.s3_objects import NONCE, OCCUPIED

if TYPE_CHECKING:
    from concurrent.futures import Future

    from pyspark_log_storage.stores.s3_objects import S3Objects

PART_BYTES = 8 * 1024 * 1024
PARTS_OF_ONE_SIZE = 1000
"""After so many parts the next are larger by `PART_BYTES`: 10,000 parts are 430 GB."""
PARTS_PENDING_MAX = 2
"""How many parts may be on their way. With the one that is filled, a writer holds three."""
UNFINISHED_SECONDS = 24 * 60 * 60
"""The age at which an upload counts as abandoned. A file that old is not sequenced any more (orphan.retention.ms)."""
_MISSING = 404
_UNSUPPORTED = 501


class S3Writer:
    """An object that is uploaded while it is written. Used by one thread."""

    def __init__(self, store: S3Objects, key: str, *, replace: bool) -> None:
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
        self._pending.append(self._store.start("upload_part", self._key, {_MISSING}, Body=body, **names))

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
        expects = {OCCUPIED, _MISSING, _UNSUPPORTED}
        for conditions in (condition, {}):
            try:
                self._store.call("complete_multipart_upload", self._key, expects, **arguments, **conditions)
                return True
            except Answered as answer:
                if self._store.nonce_of(self._key) == self._nonce:
                    return True  # an earlier attempt, whose answer was lost
                if answer.status == OCCUPIED:
                    return False
                if answer.status != _UNSUPPORTED:
                    break
        url = self._store.url
        message = f"cannot complete the upload of {self._key} to {url}: it was ended meanwhile; write it again"
        raise StoreUnavailable(url, self._key, message)

    def _abort(self) -> None:
        upload, self._upload = self._upload, ""
        with contextlib.suppress(LogError, Answered):  # `delete_unfinished` aborts it later
            self._store.call("abort_multipart_upload", self._key, {_MISSING}, UploadId=upload)
