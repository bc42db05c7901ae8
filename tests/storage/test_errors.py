"""The tree of errors: as documented, and fit to travel between Spark's processes."""

import copy
import inspect
import pickle
import re

import pytest

from pyspark_log_storage import errors
from pyspark_log_storage.errors import LogError

FACT = re.compile(r"(?<= )\.([a-z]+)\b(?=[,\n]|$)")


def documented():
    """Return the tree of the docstring: each class with its parent, whether it is retriable, and its own facts."""
    names, found, path = {cls.__name__ for cls in CLASSES}, {}, []
    for line in errors.__doc__.splitlines():
        for match in re.finditer(r"\w+", line):
            if match[0] in names and match[0] not in found:
                path = [(column, name) for column, name in path if column < match.start()]
                parent = path[-1][1] if path else None
                found[match[0]] = parent, "retriable" in line[match.end() :].split(), set(FACT.findall(line))
                path.append((match.start(), match[0]))
    del found["LogError"]
    return found


def below(cls):
    return [cls, *(each for child in cls.__subclasses__() for each in below(child))]


CLASSES = [cls for cls in below(LogError) if cls.__module__ == errors.__name__]


def made(cls):
    """An error of the class, each argument its own name."""
    return cls(*inspect.signature(cls).parameters)


def facts(cls):
    return set(vars(made(cls))) - {"message"}


def test_the_docstring_has_each_error_below_its_parent():
    built = {cls.__name__: (cls.__base__.__name__, cls.retriable) for cls in CLASSES if cls is not LogError}
    assert {name: (parent, retriable) for name, (parent, retriable, _) in documented().items()} == built


def test_the_docstring_has_the_facts_of_each_error():
    built = {cls.__name__: facts(cls) - facts(cls.__base__) for cls in CLASSES if cls is not LogError}
    assert {name: own for name, (_, _, own) in documented().items()} == built


def test_no_error_lives_outside_the_tree():
    found = {cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, BaseException)}
    assert found == set(CLASSES)


@pytest.mark.parametrize("cls", CLASSES, ids=[cls.__name__ for cls in CLASSES])
def test_an_error_reads_as_its_message_and_survives_pickling_and_copying_with_its_notes(cls):
    error = made(cls)
    assert str(error) == error.message != ""
    error.__notes__ = ["Python 3.11 lets a caller add one"]
    pickled = [pickle.loads(pickle.dumps(error, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    for back in [*pickled, copy.copy(error)]:
        assert (type(back), str(back), back.retriable, vars(back)) == (cls, str(error), error.retriable, vars(error))
