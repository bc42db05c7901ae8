"""The lists of mutants fit the code, and the command notices what it should. `make mutants` plants them all."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import trial
from tests.mutants.mutant import ROOT, Mutant, chosen, every, parse

MUTANTS = every()
SAMPLE = ("hw-of-the-fastest", "truncate-at-the-answer", "damage-past-the-end", "former-barrier", "generation-stays")
LIST = """
# A comment
file: f.py
tests: tests/a.py tests/b

one: A rule.
- if a:
-     b
+ if False:
+     b

two: Another rule.
- c
+
equivalent: nothing depends on it
"""


def test_each_mutant_applies_to_one_place_and_compiles():
    wrong = []
    for each in MUTANTS:
        text = (ROOT / each.file).read_text()
        try:
            changed = each.applied_to(text)
            ast.parse(changed)
        except (ValueError, SyntaxError) as error:
            wrong.append(str(error))
        else:
            wrong += [f"{each.name} changes nothing"] if changed == text else []
    assert not wrong, "\n".join(wrong)


def test_each_mutant_has_a_name_of_its_own_and_tests_that_exist():
    names = [each.name for each in MUTANTS]
    assert len(names) == len(set(names)) >= 100
    missing = {name for each in MUTANTS for name in each.tests if not (ROOT / name).exists()}
    assert not missing


def test_a_text_that_is_not_there_once_is_an_error():
    mutant = parse(LIST, "part")[1]
    with pytest.raises(ValueError, match="2 times"):
        mutant.applied_to("c c")
    with pytest.raises(ValueError, match="0 times"):
        mutant.applied_to("a b")


def test_a_list_is_read_mutant_by_mutant():
    one, two = parse(LIST, "part")
    assert (one.name, one.part, one.rule, one.file, one.tests) == (
        "one",
        "part",
        "A rule.",
        "f.py",
        ("tests/a.py", "tests/b"),
    )
    assert (one.old, one.new, one.equivalent) == ("if a:\n    b", "if False:\n    b", "")
    assert (two.old, two.new, two.equivalent) == ("c", "", "nothing depends on it")


@pytest.mark.parametrize("wrong", ["one: A rule.", "file: f\none: A rule.\n- a\n+ b", "a line", "- a"])
def test_a_list_that_lacks_something_is_refused(wrong):
    with pytest.raises(ValueError, match="part"):
        parse(wrong, "part")


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="no mutant and no list nobody"):
        chosen(["nobody"])
    assert chosen(["hw-of-the-fastest"])[0].part == "replication"
    assert len(chosen(["replication"])) > 1


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with one module and one test of it."""
    (tmp_path / "tests" / "storage").mkdir(parents=True)
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "rule.py").write_text("def rule(a):\n    return a > 1\n")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def root_like(tree: Path, folders: pytest.TempPathFactory) -> Path:
    """A tree without faults, of which `tree` is the copy."""
    return shutil.copytree(tree, folders.mktemp("root") / "root")


def mutant_of(rule: str, **more: str) -> Mutant:
    fields = {"name": "one", "part": "part", "rule": "A rule.", "old": "a > 1", "new": rule} | more
    return Mutant(file="storage/rule.py", tests=("tests/named.py",), **fields)


def test_a_mutant_is_noticed_by_the_named_tests_or_by_those_of_its_package_or_by_nothing(
    tree, tmp_path_factory, monkeypatch
):
    (tree / "tests" / "named.py").write_text("import rule\ndef test_two():\n    assert rule.rule(2)\n")
    other = "import rule\ndef test_one():\n    assert not rule.rule(1)\n"
    (tree / "tests" / "storage" / "test_other.py").write_text(other)
    monkeypatch.setattr(trial, "ROOT", root_like(tree, tmp_path_factory))
    results = [trial.run(mutant_of(rule), tree) for rule in ("a > 2", "a > 0", "a > 1.5")]
    assert [each.noticed_by for each in results] == [
        "tests/named.py::test_two",
        "tests/storage/test_other.py::test_one",
        "",
    ]
    assert [each.is_as_expected for each in results] == [True, True, False]
    assert trial.run(mutant_of("a > 1.5", equivalent="a is whole"), tree).is_as_expected
    assert not trial.run(mutant_of("a > 2", equivalent="it is not"), tree).is_as_expected
    assert "return a > 1\n" in (tree / "storage" / "rule.py").read_text()


def test_tests_that_do_not_run_notice_nothing(tree, tmp_path_factory, monkeypatch):
    (tree / "tests" / "named.py").write_text("import nothing_of_this_name\n")
    monkeypatch.setattr(trial, "ROOT", root_like(tree, tmp_path_factory))
    result = trial.run(mutant_of("a > 2"), tree)
    assert "did not run" in result.error
    assert not result.noticed_by
    assert not result.is_as_expected


def test_a_test_that_always_fails_notices_nothing(tree, tmp_path_factory, monkeypatch):
    (tree / "tests" / "named.py").write_text("import rule\ndef test_two():\n    assert rule.rule(2)\n")
    monkeypatch.setattr(trial, "ROOT", root_like(tree, tmp_path_factory))
    result = trial.run(mutant_of("a > 2"), tree)
    assert trial.fails_without_a_fault(tree, [result]) == ""
    (tree / "storage" / "rule.py").write_text("def rule(a):\n    return a is None\n")
    assert trial.fails_without_a_fault(tree, [result]) == "tests/named.py::test_two"


def test_a_mutant_is_noticed_by_the_first_world_that_fails(tree, tmp_path_factory, monkeypatch):
    (tree / "tests" / "simulator").mkdir()
    fails = "print('seed 3 fails: ' + ' '.join(sys.argv[2:]))"
    world = f"import rule, sys\nif rule.rule(1.2):\n    sys.exit(0)\n{fails}\nsys.exit(1)"
    (tree / "tests" / "simulator" / "__main__.py").write_text(world)
    monkeypatch.setattr(trial, "ROOT", root_like(tree, tmp_path_factory))
    worlds = trial.worlds(7, 20)
    results = [trial.run(mutant_of(rule), tree, search=worlds) for rule in ("a > 2", "a > 1.1", "a >")]
    assert results[0].noticed_by == "seed 3 fails: --seeds 0..7 --operations 20"
    assert not results[1].noticed_by
    assert not results[1].error
    assert "did not run" in results[2].error


@pytest.mark.slow
def test_a_sample_of_the_mutants_is_noticed():
    command = [sys.executable, "-m", "tests.mutants", "--named", "--only", *SAMPLE]
    ran = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"in all: {len(SAMPLE)} of {len(SAMPLE)} noticed" in ran.stdout
