"""The report: one line for each measurement, as a table in the terminal, as JSON, and in the documentation."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

BEGIN, END = "<!-- table begins -->", "<!-- table ends -->"
COLUMNS = ("", "product", "ceiling", "ratio", "target")


@dataclass(frozen=True)
class Target:
    """The bound for the ratio of product to ceiling or, if a unit is given, for the product itself."""

    bound: float
    least: bool
    unit: str = ""

    def met(self, line: Line) -> bool:
        found = line.product if self.unit else line.ratio
        assert found is not None, f"{line.name}: there is no ratio to hold against a target"
        return found >= self.bound if self.least else found <= self.bound

    def __str__(self) -> str:
        bound = _value(self.bound, self.unit) if self.unit else f"{self.bound:.2f}"
        return f"at {'least' if self.least else 'most'} {bound}"


def at_least(bound: float, unit: str = "") -> Target:
    return Target(bound, least=True, unit=unit)


def at_most(bound: float, unit: str = "") -> Target:
    return Target(bound, least=False, unit=unit)


@dataclass(frozen=True)
class Line:
    """A measurement. `ratio` is product to ceiling, in the unit; without a target it is only information.

    Details of another line are not in the documentation.
    """

    name: str
    unit: str
    product: float
    ceiling: float | None = None
    ratio: float | None = None
    target: Target | None = None
    cpu_ratio: float | None = None
    note: str = ""
    detail: bool = False

    def verdict(self) -> str:
        return "" if self.target is None else ("met" if self.target.met(self) else "missed")

    def cells(self) -> list[str]:
        verdict = self.verdict().replace("missed", "**missed**")
        return [
            self.name,
            _value(self.product, self.unit),
            "" if self.ceiling is None else _value(self.ceiling, self.unit),
            "" if self.ratio is None else f"{self.ratio:.2f}",
            "" if self.target is None else f"{self.target}: {verdict}",
        ]


def information(name: str, unit: str, product: float, ceiling: float | None = None, note: str = "") -> Line:
    """Return a line without a target."""
    return Line(name, unit, product, ceiling, product / ceiling if ceiling else None, note=note)


def detail(name: str, unit: str, product: float, ceiling: float | None = None, note: str = "") -> Line:
    """Return a line that is a detail of the one before it."""
    return dataclasses.replace(information(f"  {name}", unit, product, ceiling, note), detail=True)


def table(lines: Sequence[Line]) -> Table:
    """Return the table for the terminal."""
    drawn = Table(*COLUMNS, "")
    for line in lines:
        cpu = "" if line.cpu_ratio is None else f"processor time {line.cpu_ratio:.2f} "
        drawn.add_row(*line.cells(), cpu + line.note, style="red" if line.verdict() == "missed" else None)
    return drawn


def footer(machine: Mapping[str, str], rows: int) -> str:
    """Return the machine and the versions of a table."""
    return ", ".join(f"{name} {value}" for name, value in machine.items()) + f"; {rows:,} rows"


def write_json(path: Path, lines: Sequence[Line], machine: Mapping[str, str], rows: int) -> None:
    """Write the results as one JSON object."""
    results = [
        {**dataclasses.asdict(line), "met": None if line.target is None else line.target.met(line)} for line in lines
    ]
    path.write_text(json.dumps({"machine": dict(machine), "rows": rows, "results": results}, indent=2) + "\n")


def write_docs(path: Path, lines: Sequence[Line], measured_on: str | None) -> None:
    """Update the table of the page. Lines that were not measured this time stay.

    The text below the table also stays if `measured_on` is None.
    """
    text = path.read_text()
    before, found, rest = text.partition(BEGIN)
    old, ended, after = rest.partition(END)
    assert found, f"{path.name} has lost its mark {BEGIN}"
    assert ended, f"{path.name} has lost its mark {END}"
    rule = _row(["---"] * len(COLUMNS))
    rows = [row for row in old.partition(rule)[2].splitlines() if row.startswith("|")]
    below = old.rpartition("|\n")[2].strip() if measured_on is None else f"Measured on: {measured_on}."
    kept = {row.split("|")[1].strip(): row for row in rows}
    kept |= {line.name: _row(line.cells()) for line in lines if not line.detail}
    drawn = "\n".join([_row(COLUMNS), rule, *kept.values()])
    path.write_text(f"{before}{BEGIN}\n{drawn}\n\n{below}\n\n{END}{after}")


def _row(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _value(value: float, unit: str) -> str:
    digits = 0 if value >= 100 or value == int(value) else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}".strip()
