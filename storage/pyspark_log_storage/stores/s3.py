"""What S3 does in its own way, and any server that speaks its protocol.

An object is created by a PUT with `If-None-Match: *`. HTTP clients and proxies repeat a PUT whose connection was lost,
invisibly, so that a key which is occupied proves nothing: a nonce in the object's metadata tells whose object it is.

A list begins after a key, so a refresh of a journal is one cheap request. A large object is sent in parts. S3 lists,
reads and writes consistently, stores an object whole or not at all, and durably before it answers.
"""

from __future__ import annotations

import asyncio
import os
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.stores.bucket_errors import facts_of
from pyspark_log_storage.stores.file_system import ANSWER_SECONDS, CONNECT_SECONDS, FileSystem, Head, Page, seconds_for
from pyspark_log_storage.stores.storage_options import OPTION

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    from pyspark_log_storage.errors import StoreError
    from pyspark_log_storage.stores.bucket_errors import Meaning

NONCE = "pyspark-log-nonce"
"""The metadata that tells the attempts of one writer from those of others."""
_UNORDERED = "--x-s3"
"""The end of the names of directory buckets (S3 Express), which list in no order and cannot begin after a key."""
_CONNECTIONS_MAX = 32
_CONFIG = {
    "connect_timeout": CONNECT_SECONDS,
    "read_timeout": ANSWER_SECONDS,
    "max_pool_connections": _CONNECTIONS_MAX,
    "retries": {"total_max_attempts": 1, "mode": "standard"},
    # Chunks and journal objects have checksums of their own, and not every server knows S3's newer ones.
    "request_checksum_calculation": "when_required",
    "response_checksum_validation": "when_required",
}
_REFUSED = {400, 403}
_OPTIONS = (
    "key",
    "secret",
    "token",
    "anon",
    "profile",
    "endpoint_url",
    "use_ssl",
    "requester_pays",
    "client_kwargs",
    "config_kwargs",
    "s3_additional_kwargs",
)
_READ = "s3:GetObject, and s3:ListBucket to tell missing objects from hidden ones"
_RIGHTS = {
    "get_object": _READ,
    "head_object": _READ,
    "list_objects": "s3:ListBucket",
    "delete_object": "s3:DeleteObject",
    "abort_multipart_upload": "s3:AbortMultipartUpload",
    "list_multipart_uploads": "s3:ListBucketMultipartUploads",
}
"""The right that each operation needs, if it is not that to write."""


class S3(FileSystem):
    """Calls methods of S3, from any thread of this process."""

    is_s3 = True

    def _settings(self, options: Mapping[str, Any]) -> dict[str, Any]:
        for name in options:
            if name not in _OPTIONS:
                known = ", ".join(_OPTIONS)
                message = f"option {OPTION} has {name!r}, which s3:// stores do not have; available: {known}"
                raise InvalidOption(OPTION, message)
        settings = options.get("client_kwargs") or {}
        given = options.get("endpoint_url") or settings.get("endpoint_url")
        by_environment = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        self.server = str(given or by_environment or "Amazon S3").rpartition("@")[2]
        return {**options, "config_kwargs": {**_CONFIG, **(options.get("config_kwargs") or {})}}

    async def _connect(self) -> None:
        self.fs.retries = 1
        await self.fs.set_session()

    def _told(
        self, error: Exception, at: tuple[str, str], operation: str, **details: str
    ) -> tuple[Meaning, StoreError]:
        """Also name the right that an operation lacks, and the region that the answer names."""
        if isinstance(error, OSError) and isinstance(error.__cause__, Exception):
            error = error.__cause__  # botocore's, in one of s3fs's
        right, answer = _RIGHTS.get(operation, "s3:PutObject"), getattr(error, "response", None) or {}
        role = getattr(error, "operation_name", "")
        if role.startswith("AssumeRole"):
            right = f"sts:{role} to the source of the profile, and let the role trust it"
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        region = answer.get("Error", {}).get("Region") or headers.get("x-amz-bucket-region")
        place = f", {region}" if region else " or at another endpoint"
        return super()._told(error, at, operation, right=right, region=place, **details)

    async def put_object(self, path: str, data: bytes, *, create: bool = False, nonce: str = "") -> None:
        condition: dict[str, Any] = {"Metadata": {NONCE: nonce}, "IfNoneMatch": "*"} if create else {}
        await self._send("put_object", path, Body=data, **condition)

    async def get_object(self, path: str, start: int, end: int | None) -> bytes:
        limits: dict[str, Any] = (
            {} if (start, end) == (0, None) else {"Range": f"bytes={start}-{'' if end is None else end - 1}"}
        )
        began = time.monotonic()
        answer = await asyncio.wait_for(self._send("get_object", path, **limits), seconds_for(0))
        body, passed = answer["Body"], time.monotonic() - began
        try:
            found = await asyncio.wait_for(body.read(), seconds_for(answer["ContentLength"]) - passed)
            return bytes(found)
        finally:
            body.close()

    async def head_object(self, path: str) -> Head:
        try:
            answer = await self._send("head_object", path)
        except Exception as refused:
            if facts_of(refused).status in _REFUSED:
                # An answer to HEAD has no body, and so does not say why; one to GET does.
                (await self._send("get_object", path, Range="bytes=0-0"))["Body"].close()
            raise
        now_ms = int(_date_of(answer).timestamp() * 1000)
        return Head(int(answer["ContentLength"]), now_ms, answer["Metadata"].get(NONCE, ""))

    async def list_objects(self, path: str, after: str, more: Any, *, folders: bool) -> Page:
        bucket = path.partition("/")[0]
        limits: dict[str, Any] = {"Delimiter": "/"} if folders else {}
        if after and not bucket.endswith(_UNORDERED):
            limits["StartAfter"] = after.removeprefix(f"{bucket}/")
        objects, below = [], []
        while True:
            limits |= {"ContinuationToken": more} if more else {}
            page = await self._send("list_objects_v2", path, "Prefix", **limits)
            objects += [f"{bucket}/{each['Key']}" for each in page.get("Contents", ())]
            below += [f"{bucket}/{each['Prefix']}" for each in page.get("CommonPrefixes", ())]
            more = page["NextContinuationToken"] if page.get("IsTruncated") else None
            if not (more and bucket.endswith(_UNORDERED)):
                return Page(objects, below, more)

    async def create_multipart_upload(self, path: str, nonce: str) -> str:
        answer = await self._send("create_multipart_upload", path, Metadata={NONCE: nonce})
        return str(answer["UploadId"])

    async def upload_part(self, path: str, upload: str, number: int, data: bytes) -> str:
        """Send a part, and return what names its bytes."""
        answer = await self._send("upload_part", path, UploadId=upload, PartNumber=number, Body=data)
        return str(answer["ETag"])

    async def complete_multipart_upload(self, path: str, upload: str, etags: Sequence[str], *, create: bool) -> None:
        """Make the object of an upload visible, with `create` only if there is none."""
        parts = [{"ETag": etag, "PartNumber": number} for number, etag in enumerate(etags, 1)]
        condition = {"IfNoneMatch": "*"} if create else {}
        given: dict[str, Any] = {"UploadId": upload, "MultipartUpload": {"Parts": parts}, **condition}
        await self._send("complete_multipart_upload", path, **given)

    async def abort_multipart_upload(self, path: str, upload: str) -> None:
        await self._send("abort_multipart_upload", path, UploadId=upload)

    async def list_multipart_uploads(self, path: str, more: Any) -> tuple[list[tuple[str, str, float]], Any]:
        """Return the path, the id and the age in seconds of some uploads, and what to ask for the next."""
        page = await self._send("list_multipart_uploads", path, "Prefix", **(more or {}))
        bucket, now = path.partition("/")[0], _date_of(page)
        found = [
            (f"{bucket}/{each['Key']}", str(each["UploadId"]), (now - each["Initiated"]).total_seconds())
            for each in page.get("Uploads", ())
        ]
        more = {"KeyMarker": page.get("NextKeyMarker"), "UploadIdMarker": page.get("NextUploadIdMarker")}
        return found, more if page.get("IsTruncated") else None

    async def _send(self, method: str, path: str, name: str = "Key", **arguments: Any) -> Any:
        """Return the answer to a call of botocore's; `name` is what it calls the path in the bucket."""
        bucket, _, key = path.partition("/")
        names = {"Bucket": bucket, name: key}
        return await self.fs._call_s3(method, **names, **arguments)  # noqa: SLF001 -- fsspec's name for async


def _date_of(answer: Mapping[str, Any]) -> dt.datetime:
    return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
