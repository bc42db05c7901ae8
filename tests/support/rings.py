"""The two rings of the tests: `default` is what `make test` runs, `deep` is what `make prove` runs besides.

A folder has a ring, and a marker on a module, a test or a parameter overrides it (`ring_of`). A sweep has two sizes:
a fixed sample in the default ring, and all of it in the deep one. Of the default ring `make quick` runs the folders of
pure rules and formats, without what takes long by its kind (`is_quick`).
"""

from collections.abc import Iterable
from typing import Any

import pytest

DEFAULT, DEEP, QUICK = "default", "deep", "quick"

FOLDERS = {
    "": DEFAULT,
    "coordinator": DEFAULT,
    "coordinator/assignors": QUICK,
    "coordinator/cluster": QUICK,
    "coordinator/group": QUICK,
    "coordinator/journal": QUICK,
    "coordinator/log": QUICK,
    "coordinator/membership": QUICK,
    "coordinator/model": QUICK,
    "coordinator/rebuild": QUICK,
    "coordinator/replication": QUICK,
    "coordinator/segments": QUICK,
    "coordinator/sync": QUICK,
    "coordinator/topic": QUICK,
    "history": DEFAULT,
    "pyspark_log": DEFAULT,
    "pyspark_log/browse": QUICK,
    "pyspark_log/clients": QUICK,
    "pyspark_log/history": QUICK,
    "pyspark_log/documents": QUICK,
    "pyspark_log/metrics": QUICK,
    "pyspark_log/options": QUICK,
    "pyspark_log/reading": QUICK,
    "pyspark_log/sink": QUICK,
    "pyspark_log/source": QUICK,
    "pyspark_log/spark_conf": QUICK,
    "pyspark_log/ui": QUICK,
    "pyspark_log/writing": QUICK,
    "simulator": DEFAULT,
    "storage": QUICK,
    "browser": DEEP,
    "delta": DEEP,
    "disk": DEEP,
    "examples": DEEP,
    "spark": DEEP,
    "spark_facts": DEEP,
    "specification": DEEP,
    "torture": DEEP,
}
"""The ring of each folder below tests, and of those in it; the first is of the files beside the folders. Those that are
`QUICK` are in the default ring, and most of their tests in `make quick`."""

LONG = {"slow", "spark"}
"""Marks of the tests that `make quick` leaves out, as it does properties, which have many examples."""
SERVERS = {"ceph", "moto"}
"""Fixtures of servers, or parameters that stand for them, whose tests it leaves out, too."""

WITH_PROCESSES = {
    "spark/test_kill_points.py",
    "spark/test_zombie_driver.py",
}
"""The files whose tests in the default ring start processes of their own."""

DEEP_SECONDS_MAX = 300
"""The limit of a deep test that hangs, unless it has one of its own; that of the others is in pyproject.toml."""


def deep(*values: Any) -> Any:
    """Return a parameter of a test that runs in the deep ring only, in a folder of the default one."""
    return pytest.param(*values, marks=pytest.mark.deep)


def default(*values: Any) -> Any:
    """Return a parameter of a test that runs in the default ring, in a folder of the deep one."""
    return pytest.param(*values, marks=pytest.mark.default)


def sample(values: Iterable[Any], count: int) -> list[Any]:
    """Return all values as parameters: `count` of them, evenly chosen, in the default ring, the others deep."""
    values = list(values)
    chosen = {index * len(values) // count for index in range(count)}
    return [value if index in chosen else deep(value) for index, value in enumerate(values)]


def ring_of(item: pytest.Item, folder: str) -> str:
    """Return the ring of a test: that of its markers, else that of its folder. Raises unless it is one ring."""
    marked = {each.name for each in item.iter_markers() if each.name in (DEFAULT, DEEP)}
    given = _given(folder)
    rings = marked or {DEFAULT if each == QUICK else each for each in [given] if each}
    if len(rings) != 1:
        found = "both rings" if rings else f"no ring: name the folder {folder!r} in tests/support/rings.py"
        message = f"{item.nodeid} is in {found}"
        raise pytest.UsageError(message)
    return rings.pop()


def is_quick(item: pytest.Item, folder: str) -> bool:
    """Return whether `make quick` runs a test, which is known to be in the default ring."""
    marks = {each.name for each in item.iter_markers()}
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    used = {*getattr(item, "fixturenames", ()), *(each for each in parameters if isinstance(each, str))}
    is_property = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    return _given(folder) == QUICK and not (marks & LONG or used & SERVERS or is_property)


def _given(folder: str) -> str | None:
    """Return what a folder, or else the nearest one above it, is given."""
    parts = folder.split("/")
    above = ("/".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((FOLDERS[each] for each in above if each in FOLDERS), None)
