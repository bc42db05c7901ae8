"""The schemes of addresses: their other names, and what must be installed for them.

`s3://` has a client of its own. Others are opened with fsspec: any scheme that it knows, if its implementation can
create an object only once.
"""

from __future__ import annotations

import re

_ALIASES = {"s3a": "s3", "gcs": "gs", "az": "abfs", "abfss": "abfs"}
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
PACKAGES = {"gs": "gcsfs", "abfs": "adlfs"}
"""What implements a scheme, if it was tried."""
_ELSEWHERE = {
    "memory": "it is in the memory of one process, and others see another one; use a folder",
    "local": "write a folder as /data/log or file:///data/log",
}


def canonical(scheme: str) -> str:
    """Return the name under which the addresses of a scheme are stored.

    >>> canonical("S3A"), canonical("az")
    ('s3', 'abfs')
    """
    return _ALIASES.get(scheme.lower(), scheme.lower())


def refusal(scheme: str) -> str:
    """Return why no store can have this scheme, or "" if one can."""
    if not _SCHEME.fullmatch(scheme):
        return "the scheme is not a word; addresses cannot be chained"
    return _ELSEWHERE.get(scheme, "")
