"""The schemes of addresses: their other names, and what must be installed for them.

A store has any scheme that fsspec knows, if its implementation can create an object only once.
"""

from __future__ import annotations

from pyspark_log_storage.errors import InvalidOption

_ALIASES = {"s3a": "s3", "gcs": "gs", "az": "abfs", "abfss": "abfs"}
_PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "abfs": "adlfs"}
"""What implements a scheme, and brings fsspec."""


def canonical(scheme: str) -> str:
    """Return the name under which the addresses of a scheme are stored.

    >>> canonical("S3A"), canonical("az")
    ('s3', 'abfs')
    """
    return _ALIASES.get(scheme.lower(), scheme.lower())


def missing(scheme: str, package: str, error: Exception) -> InvalidOption:
    """Return the error if what implements a scheme, `package` unless it is known, cannot be imported."""
    package = _PACKAGES.get(scheme, package)
    reason = f"it cannot be imported ({error}); pip install {package}"
    return InvalidOption("path", f"{scheme}:// addresses need {package}, and {reason}")
