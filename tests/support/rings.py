"""The two rings of the tests: `default` is what `make test` runs, `deep` is what `make prove` runs besides.

A folder has a ring, and a marker on a module, a test or a parameter overrides it (`ring_of`). A sweep has two sizes:
a fixed sample in the default ring, and all of it in the deep one.
"""

from collections.abc import Iterable
from typing import Any

import pytest

DEFAULT, DEEP = "default", "deep"

FOLDERS = {
    "": DEFAULT,
    "coordinator": DEFAULT,
    "history": DEFAULT,
    "pyspark_log": DEFAULT,
    "simulator": DEFAULT,
    "storage": DEFAULT,
    "browser": DEEP,
    "delta": DEEP,
    "disk": DEEP,
    "examples": DEEP,
    "processes": DEEP,
    "release": DEEP,
    "spark": DEEP,
    "spark_facts": DEEP,
    "specification": DEEP,
    "torture": DEEP,
}
"""The ring of each folder below tests; the first is of the files beside the folders."""

WITH_PROCESSES = {
    "spark/test_kill_points.py",
    "spark/test_zombie_driver.py",
    "test_find_java.py",
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
    rings = marked or {FOLDERS[folder]} if folder in FOLDERS else marked
    if len(rings) != 1:
        found = "both rings" if rings else f"no ring: name the folder {folder!r} in tests/support/rings.py"
        message = f"{item.nodeid} is in {found}"
        raise pytest.UsageError(message)
    return rings.pop()
