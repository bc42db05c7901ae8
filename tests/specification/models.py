"""The configurations in which TLC explores the specifications, and the faults that it must find in them.

A configuration is small, so that all its states are visited: a few nodes, rows, epochs and generations. Each explores
a part of the actions together. The faults are in faults.txt: `file:` and `tests:` hold for all faults
after them, the module that they change, and the model in which TLC must find them. A fault has a name, the rule that it
breaks in words, the exact text in the module (`-`) and what takes its place (`+`).
"""

from pathlib import Path
from typing import NamedTuple

from tests.specification import tlc

FAULTS = Path(__file__).with_name("faults.txt")


class Fault(NamedTuple):
    """A fault of a specification."""

    name: str
    file: str
    model: str
    old: str
    new: str

    def applied_to(self, text: str) -> str:
        """Return the text of the module with the fault; the old text is there once."""
        assert text.count(self.old) == 1, f"{self.name}: {self.file} has its old text {text.count(self.old)} times"
        return text.replace(self.old, self.new)


class Model(NamedTuple):
    """A module, its constants, and the properties that must hold."""

    module: str
    constants: dict[str, str]
    invariants: str
    symmetry: str = ""
    """What the module calls the permutations under which states are the same; empty if there are none."""

    def settings(self) -> str:
        """Return TLC's configuration file."""
        constants = [f"  {name} {'<-' if name == 'Order' else '='} {value}" for name, value in self.constants.items()]
        lines = ["SPECIFICATION Spec", "CONSTANTS", *constants, "CONSTRAINT Small"]
        lines += [f"SYMMETRY {self.symmetry}"] if self.symmetry else []
        return "\n".join([*lines, f"INVARIANTS {self.invariants}", "PROPERTY StepsHold", ""])


def _partition(order: str, kinds: str, *, rows: int, epochs: int, **other: object) -> Model:
    given: dict[str, object] = {"Spares": "{}", "Min": 2, "Quorum": "FALSE", "SuspectsMax": 1, **other}
    constants = {"Order": order, "RowsMax": rows, "EpochMax": epochs, "Kinds": _named(kinds), **given}
    invariants = "Holds NothingAcknowledgedIsCut WhatIsAcknowledgedIsCommitted"
    return Model("ReplicationModel", {name: str(value) for name, value in constants.items()}, invariants)


def _group(clients: str, static: str, *, offsets: int, generations: int, rewinds: int, partitions: str) -> Model:
    constants = {"Clients": clients, "Static": static, "Partitions": partitions}
    bounds = {"OffsetMax": offsets, "GenerationMax": generations, "RewindMax": rewinds}
    numbers = {name: str(value) for name, value in bounds.items()}
    return Model("GroupsModel", {**constants, **numbers}, "Holds AcceptedCommitsAreRight")


def _journal(first: str, contended: str, kinds: str, *, slots: int, ballots: int, **other: object) -> Model:
    given: dict[str, object] = {"Writers": "{p, q}", "Lists": "{}", "Alike": first, "GenerationMax": 2, "LostMax": 0}
    bounds = {"SlotMax": slots, "BallotMax": ballots}
    constants = {"First": first, "Contended": contended, "Kinds": _named(kinds), **bounds, **given, **other}
    numbers = {name: str(value) for name, value in constants.items()}
    return Model("JournalsModel", numbers, "Holds NothingDecidedIsLost", "Same" if "," in numbers["Alike"] else "")


def _named(kinds: str) -> str:
    return "{" + ", ".join(f'"{kind}"' for kind in kinds.split()) + "}"


MOVES = {"Lists": "{{b, c, d}}", "Alike": "{b, c}"}
MODELS = {
    "elections": _partition("ABC", "append hold shrink suspect elect", rows=2, epochs=1),
    "segments": _partition("AB", "append hold shrink segment start", rows=2, epochs=1, Min=1),
    "reassignment": _partition("AB", "append hold alter fence elect", rows=1, epochs=2, Min=1, Spares='{"c"}'),
    "quorum": _partition("ABC", "append hold elect renew", rows=2, epochs=2, Quorum="TRUE", SuspectsMax=0),
    "unclean": _partition("AB", "append hold suspect elect unclean", rows=2, epochs=2, Min=1),
    "group": _group('{"x", "y"}', "{}", offsets=1, generations=2, rewinds=1, partitions='{"p"}'),
    "static": _group('{"x", "y"}', '{"x"}', offsets=1, generations=2, rewinds=1, partitions='{"p"}'),
    "one-store": _journal("{a}", "{11, 12, 13}", "snapshot late trim", slots=3, ballots=0),
    "registers": _journal("{a, b, c}", "{11}", "", slots=1, ballots=1, LostMax=1),
    "ballots": _journal("{a, b, c}", "{11}", "", slots=1, ballots=2),
    "trimming": _journal("{a, b, c}", "{11}", "snapshot trim", slots=2, ballots=1),
    "moving": _journal("{a, b, c}", "{11}", "snapshot", slots=1, ballots=1, **MOVES, LostMax=1),
    "moved": _journal("{a, b, c}", "{22}", "snapshot", slots=2, ballots=1, **MOVES),
}


def explore(model: Model, fault: Fault | None = None, *, seconds: float = 600) -> tlc.Run:
    """Explore a model, with a fault in its specification if one is given."""
    more = {}
    if fault is not None:
        place = tlc.ROOT / fault.file
        more[place.stem] = fault.applied_to(place.read_text())
    return tlc.run(model.module, model.settings(), more, seconds=seconds)


def faults() -> list[Fault]:
    """Return the faults that TLC must find. What the list calls tests are models."""
    found, settings = [], {"file": "", "tests": ""}
    for block in FAULTS.read_text().split("\n\n"):
        name = ""
        text: dict[str, list[str]] = {"-": [], "+": []}
        for line in block.splitlines():
            head, _, rest = line.partition(": ")
            if line[:1] in text:
                text[line[0]].append(line[2:])
            elif head in settings:
                settings[head] = rest
            elif not line.startswith("#"):
                name = head
        if name:
            found.append(Fault(name, settings["file"], settings["tests"], "\n".join(text["-"]), "\n".join(text["+"])))
    return found
