"""How the page is served."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pyspark_log_storage.stores.storage_options import StorageOptions


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How the page is served."""

    path: str
    options: StorageOptions | None = None
    host: str = "127.0.0.1"
    """The address that it listens on."""
    port: int = 8080
    hosts: tuple[str, ...] = ()
    """Other names of the host under which a proxy hands requests on."""
    root: str = ""
    """The path below which a proxy serves the page, such as /log."""
    token: str = ""
    """What viewers must have; empty for none, which is for loopback only."""
    allow_changes: bool = False
    shows_rows: bool = True
    mask: tuple[str, ...] = ()
    """What is not shown of rows (`masks`)."""
