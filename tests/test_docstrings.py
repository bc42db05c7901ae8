"""The examples in docstrings are doctests."""

import doctest
import importlib
import pkgutil
from types import ModuleType

import pytest

import pyspark_log
import pyspark_log_coordinator
import pyspark_log_storage
from pyspark_log import Producer
from tests.support.plain_log import PlainLog

PACKAGES = (pyspark_log, pyspark_log_coordinator, pyspark_log_storage)
EXTRA = {"Producer": Producer}
"""What examples use beside the names of their module."""


def modules() -> list[ModuleType]:
    names = [info.name for each in PACKAGES for info in pkgutil.walk_packages(each.__path__, each.__name__ + ".")]
    return [importlib.import_module(name) for name in names if not name.endswith("__main__")]


def examples() -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [each for module in modules() for each in finder.find(module, extraglobs=EXTRA)]
    return [each for each in found if each.examples]


@pytest.mark.parametrize("example", examples(), ids=lambda each: each.name)
def test_an_example_prints_what_it_says(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    PlainLog(tmp_path / "data" / "log")
    printed: list[str] = []
    result = doctest.DocTestRunner().run(example, out=printed.append)
    assert result.failed == 0, "".join(printed)
