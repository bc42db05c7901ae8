"""The examples in docstrings are doctests, and what docstrings name exists."""

import ast
import doctest
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import pyspark_log
import pyspark_log_coordinator
import pyspark_log_storage
from pyspark_log import Producer
from pyspark_log_coordinator.assignors.subscription import Subscription
from tests.support.plain_log import PlainLog

PACKAGES = (pyspark_log, pyspark_log_coordinator, pyspark_log_storage)
EXTRA = {"Producer": Producer, "Subscription": Subscription}
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


def classes_and_texts() -> tuple[dict[str, set[str]], list[str]]:
    """Return the names that are used in each class and in those above it, and all docstrings."""
    names: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    texts = []
    for module in modules():
        tree = ast.parse(Path(str(module.__file__)).read_text())
        constants = (each.value for each in ast.walk(tree) if isinstance(each, ast.Constant))
        texts += [each for each in constants if isinstance(each, str)]
        for each in ast.walk(tree):
            if isinstance(each, ast.ClassDef):
                words = re.findall(r"\w+", re.sub(r'""".*?"""', "", ast.unparse(each), flags=re.DOTALL))
                names.setdefault(each.name, set()).update(words)
                bases.setdefault(each.name, set()).update(ast.unparse(base).split("[")[0] for base in each.bases)

    def above(name: str) -> Iterator[str]:
        yield name
        for base in bases.get(name, ()):
            yield from above(base)

    return {name: set().union(*(names.get(each, set()) for each in above(name))) for name in names}, texts


def test_what_docstrings_name_is_in_its_class():
    classes, texts = classes_and_texts()
    stated = {pair for text in texts for pair in re.findall(r"`([A-Z]\w+)\.(\w+)[`(]", text) if pair[0] in classes}
    assert len(stated) > 15
    assert {f"{name}.{part}" for name, part in stated if part not in classes[name]} == set()
