"""The examples in docstrings are doctests, and what docstrings name exists."""

import ast
import doctest
import importlib
import pkgutil
import re
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
ROOT = Path(__file__).parent.parent
FILES = [
    file
    for folder in ("pyspark_log", "coordinator", "storage", "tests", "scripts", "examples", "benchmarks")
    for file in sorted((ROOT / folder).rglob("*.py"))
]
FOREIGN = {
    "JavaUtils.byteStringAs",
    "JavaUtils.timeStringAsMs",
    "KafkaSourceProvider.checkOffsetLimitValidity",
    "org.apache.kafka.common.internals.Topic",
    "pa.ipc.read_record_batch",
    "kafka.X",
}
"""Names in Spark, Kafka and Arrow, and any option with the prefix `kafka.`."""
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


class Names(ast.NodeVisitor):
    """The docstrings of a module, the names that its code uses, and the texts in its code."""

    def __init__(self, file: Path):
        self.docstrings: list[str] = []
        self.used: set[str] = set()
        self.texts: list[str] = []
        self.visit(ast.parse(file.read_text()))

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            self.docstrings.append(node.value.value)
        else:
            self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            self.texts.append(node.value)
        self.used.update(
            value
            for field, value in ast.iter_fields(node)
            if field in {"name", "id", "attr", "arg", "asname"} and isinstance(value, str)
        )
        super().generic_visit(node)


def test_functions_modules_and_pages_that_docstrings_name_exist():
    modules = {file: Names(file) for file in FILES}
    paths = {part for file in FILES for part in file.relative_to(ROOT).with_suffix("").parts}
    used = paths.union({"py"}, *(each.used for each in modules.values()))
    of_module: dict[str, set[str]] = {}
    for file, each in modules.items():
        of_module.setdefault(file.stem, {"py"}).update(each.used)
    texts = "\n".join(text for each in modules.values() for text in each.texts)
    options = set(re.findall(r"[\w.]+", texts)) | FOREIGN
    unknown = []
    for file, each in modules.items():
        for text in each.docstrings:
            found = re.findall(r"`(\w+(?:\.\w+)+)(?:\([^`]*\))?`|`([a-z]+_\w+)`|`(\w+)\(", text)
            for name in {"".join(groups) for groups in found} - options:
                first, *rest = name.split(".")
                parts = used if first in each.used else of_module.get(first, used)
                if first not in used or not parts.issuperset(rest):
                    unknown.append(f"{file.relative_to(ROOT)}: {name}")
            pages = set(re.findall(r"\bdocs/[\w/.-]+\.md", text))
            unknown += [f"{file.relative_to(ROOT)}: {page}" for page in pages if not (ROOT / page).exists()]
    assert unknown == []
