"""Mutants: small, dangerous faults in the rules of the product, and how the lists of them are read.

A list is a text file, one for each part of the product. `file:` and `tests:` hold for all mutants after them: the file
that they change, and the tests that should notice it. A mutant has a name, the rule that it breaks in words, the exact
text in the file (`-`) and what takes its place (`+`); several such lines are several lines of the file. One that breaks
no promise says so, and why (`equivalent:`).

    file: coordinator/pyspark_log_coordinator/replication/high_watermark.py
    tests: tests/coordinator/replication/test_high_watermark.py

    hw-of-a-small-isr: The HW does not advance while the ISR is smaller than min.insync.replicas.
    - len(isr) < min(min_insync, replicas)
    + len(isr) + 1 < min(min_insync, replicas)
    equivalent: the reason, if it is one
"""

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
_HEAD = re.compile(r"([a-z0-9-]+): (\S.*)")


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """One fault. Paths begin at the root of the repository."""

    name: str
    part: str
    """The name of the list that it is in."""
    rule: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    """Files and folders of tests, those first that should notice it."""
    equivalent: str = ""
    """Why nothing can notice it; empty for one that must be noticed."""

    def applied_to(self, text: str) -> str:
        """Return the text of the file with the fault. Raise `ValueError` unless the old text is there exactly once."""
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"{self.name}: {self.file} has its old text {found} times, not once:\n{self.old}")
        return text.replace(self.old, self.new)


def lists() -> list[Path]:
    """Return the lists of mutants."""
    return sorted(Path(__file__).parent.glob("*.txt"))


def every() -> list[Mutant]:
    """Return all mutants, list by list."""
    return [mutant for path in lists() for mutant in parse(path.read_text(), path.stem)]


def parse(text: str, part: str) -> list[Mutant]:
    """Return the mutants of a list. Raise `ValueError` for a line of no known kind, and for one that is missing."""
    settings = {"file": "", "tests": ""}
    found: list[dict[str, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line[:1] in {"-", "+"} and line[1:2] in {" ", ""} and found:
            _add(found[-1], {"-": "old", "+": "new"}[line[0]], line[2:])
        elif (head := _HEAD.fullmatch(line)) is None:
            raise ValueError(f"{part}, line {number}: {line!r} is no line of a list of mutants")
        elif head[1] in settings:
            settings[head[1]] = head[2]
        elif head[1] == "equivalent" and found:
            found[-1]["equivalent"] = head[2]
        else:
            found.append({"name": head[1], "rule": head[2], **settings})
    return [_mutant(each, part) for each in found]


def _add(fields: dict[str, str], kind: str, line: str) -> None:
    fields[kind] = f"{fields[kind]}\n{line}" if kind in fields else line


def _mutant(fields: dict[str, str], part: str) -> Mutant:
    missing = [name for name in ("file", "tests", "old") if not fields.get(name)]
    if missing or "new" not in fields:
        raise ValueError(f"{part}: {fields['name']} has no {', '.join(missing or ['new'])}")
    return Mutant(**{**fields, "part": part, "tests": tuple(fields["tests"].split())})


def chosen(names: Iterable[str]) -> list[Mutant]:
    """Return the mutants with these names, or of the lists with these names. Raise `ValueError` for an unknown one."""
    wanted, mutants = list(names), every()
    unknown = set(wanted) - {name for each in mutants for name in (each.name, each.part)}
    if unknown:
        raise ValueError(f"there is no mutant and no list {', '.join(sorted(unknown))}")
    return [each for each in mutants if not wanted or {each.name, each.part} & set(wanted)]
