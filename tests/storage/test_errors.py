"""The tree of errors: as drawn, and fit to travel between Spark's processes."""

import copy
import inspect
import pickle
import re

import pytest

from pyspark_log_storage import errors
from pyspark_log_storage.errors import LogError

DRAWN = re.compile(r"^ {4}([| ]*)[|`]-- (\w+)( +retriable\b)?.*$", re.MULTILINE)
FACT = re.compile(r"(?<= )\.([a-z]+)\b(?=[,\n]|$)")


def drawn():
    """The tree of the docstring: for each class its parent, whether it is retriable, and its own facts."""
    found, path = {}, ["LogError"]
    for match in DRAWN.finditer(errors.__doc__):
        path[len(match[1]) // 4 + 1 :] = [match[2]]
        found[match[2]] = path[-2], bool(match[3]), set(FACT.findall(match[0]))
    return found


def below(cls):
    return [cls, *(each for child in cls.__subclasses__() for each in below(child))]


CLASSES = [cls for cls in below(LogError) if cls.__module__ == errors.__name__]
EVERY_CLASS = pytest.mark.parametrize("cls", CLASSES, ids=[cls.__name__ for cls in CLASSES])


def made(cls):
    """An error of the class, each argument its own name."""
    return cls(*inspect.signature(cls).parameters)


def facts(cls):
    return set(vars(made(cls))) - {"message"}


def test_the_tree_is_drawn_as_it_is():
    built = {cls.__name__: (cls.__base__.__name__, cls.retriable) for cls in CLASSES if cls is not LogError}
    assert {name: (parent, retriable) for name, (parent, retriable, _) in drawn().items()} == built


def test_the_facts_are_drawn_as_they_are():
    built = {cls.__name__: facts(cls) - facts(cls.__base__) for cls in CLASSES if cls is not LogError}
    assert {name: own for name, (_, _, own) in drawn().items()} == built


def test_no_error_lives_outside_the_tree():
    found = {cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, BaseException)}
    assert found == set(CLASSES)


@EVERY_CLASS
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_survives_pickling(cls, protocol):
    error = made(cls)
    back = pickle.loads(pickle.dumps(error, protocol))
    assert (type(back), str(back), back.retriable, vars(back)) == (cls, str(error), error.retriable, vars(error))


@EVERY_CLASS
def test_an_error_survives_copying(cls):
    error = made(cls)
    back = copy.copy(error)
    assert (type(back), str(back), vars(back)) == (cls, str(error), vars(error))


@EVERY_CLASS
def test_an_error_reads_as_its_message(cls):
    error = made(cls)
    assert str(error) == error.message != ""


@EVERY_CLASS
def test_an_error_is_caught_as_a_log_error(cls):
    with pytest.raises(LogError):
        raise made(cls)


@EVERY_CLASS
def test_an_error_takes_notes(cls):
    """Python 3.11 lets a caller add one; it must not break the pickle."""
    error = made(cls)
    error.__notes__ = ["a note"]
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["a note"]
