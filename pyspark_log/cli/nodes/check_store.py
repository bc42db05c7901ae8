"""`pyspark-log cluster check-store`: whether a folder or bucket can hold a log."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments, output
from pyspark_log_storage.errors import InvalidOption

if TYPE_CHECKING:
    from pyspark_log_storage.stores.store import Store

EXAMPLES = """\b
Examples:
  pyspark-log cluster check-store /mnt/share/log
  pyspark-log cluster check-store /mnt/share/log --meet monday
"""
_MOUNTS = Path("/proc/self/mounts")


def check_store(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Address of the store.", show_default=False)],
    meet: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Check it together with another machine, on which the same command runs with the same NAME: any new "
            "word. The two wait for each other for a minute.",
        ),
    ] = None,
    json: arguments.Json = False,
) -> None:
    """Check whether a store can hold a log.

    It makes the test that a store must pass when it joins a cluster, and then two users create, read and list the same
    objects at once. With --meet the other user is another machine, whose caches are then tested too. A node of a
    running cluster may be checked; nothing stays on the store.
    """
    from pyspark_log_coordinator.environment import real_environment
    from pyspark_log_storage.stores.addresses import absolute_url, open_store
    from pyspark_log_storage.stores.self_test import self_test
    from pyspark_log_storage.stores.store_check import meet as meet_another
    from pyspark_log_storage.stores.store_check import meet_oneself

    if meet is not None and re.fullmatch(r"[A-Za-z0-9_]{1,50}", meet) is None:
        arguments.refuse("--meet", f"{meet!r} is not a word of letters and digits")
    url = absolute_url(address)
    if "://" not in url and not Path(url).is_dir():
        raise InvalidOption("address", f"there is no folder at {url}; is it mounted? Create it first")
    stores, environment = [open_store(url), open_store(url)], real_environment()
    self_test(stores[0], environment.nonce(), environment.store_threads)
    nonce = environment.nonce()
    found = meet_oneself(stores, nonce) if meet is None else meet_another(stores[0], meet, nonce)
    document: dict[str, Any] = {"address": url, "file_system": _file_system(url), "locks": _has_locks(stores[0])}
    document |= {"machines": 1 if meet is None else 2, "rounds": found.rounds, "slowest_ms": found.slowest_ms}
    output.show(document, *_lines(document), json=json)


def _lines(document: dict[str, Any]) -> list[str]:
    lines = [
        f"{document['address']} can hold a log, as far as this test shows",
        f"machines     {document['machines']}",
        f"rounds       {document['rounds']}; the slowest answer took {document['slowest_ms']:g} ms",
    ]
    if document["file_system"] is not None:
        lines.append(f"file system  {document['file_system']}")
    if document["locks"] is not None:
        without = "none: files of killed writers below .tmp stay for a day"
        lines.append(f"locks        {'yes' if document['locks'] else without}")
    untested = "whether flushed bytes survive a power failure, and faults that are rare"
    others = "; what other machines see (use --meet)" if document["machines"] == 1 else ""
    return [*lines, f"not tested   {untested}{others}"]


def _file_system(url: str) -> str | None:
    """Return the kind of file system and what is mounted, or None if that is unknown."""
    path = Path(url).resolve()
    try:
        with _MOUNTS.open(encoding="utf-8") as file:
            mounts = [line.split()[:3] for line in file]
    except OSError:
        return None
    above = [(len(point), kind, what) for what, point, kind in mounts if f"{path}/".startswith(f"{point.rstrip('/')}/")]
    return None if "://" in url or not above else "{1} ({2})".format(*max(above, key=lambda each: each[0]))


def _has_locks(store: Store) -> bool | None:
    """Return whether the files of a local store can be locked; None for an object store."""
    from pyspark_log_storage.stores import temporary

    folder = getattr(store, "temporary_folder", None)
    return None if folder is None else temporary.has_locks(folder)
