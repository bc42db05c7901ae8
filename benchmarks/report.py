"""The report: a line for each thing measured, as a table in the terminal, as JSON, and in the documentation."""

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
COLUMNS = ("", "product", "ceiling", "unit", "ratio", "CPU ratio", "target", "")


@dataclass(frozen=True)
class Target:
    """What the ratio of product to ceiling must be."""

    bound: float
    least: bool

    def met(self, ratio: float) -> bool:
        return ratio >= self.bound if self.least else ratio <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.least else '≤'} {self.bound:.2f}"


def at_least(bound: float) -> Target:
    return Target(bound, least=True)


def at_most(bound: float) -> Target:
    return Target(bound, least=False)


@dataclass(frozen=True)
class Line:
    """A thing measured. `ratio` is product to ceiling, in the unit; without a target it is only information."""

    name: str
    unit: str
    product: float
    ceiling: float
    ratio: float
    target: Target | None = None
    cpu_ratio: float | None = None
    note: str = ""

    def cells(self) -> list[str]:
        verdict = "" if self.target is None else ("met" if self.target.met(self.ratio) else "MISSED")
        return [
            self.name,
            f"{self.product:.2f}",
            f"{self.ceiling:.2f}",
            self.unit,
            f"{self.ratio:.2f}",
            "" if self.cpu_ratio is None else f"{self.cpu_ratio:.2f}",
            "" if self.target is None else f"{self.target} {verdict}",
            self.note,
        ]


def information(name: str, unit: str, product: float, ceiling: float, note: str = "") -> Line:
    """Return a line without a target."""
    return Line(name, unit, product, ceiling, product / ceiling if ceiling else 0.0, note=note)


def table(lines: Sequence[Line]) -> Table:
    """Return the table for the terminal."""
    drawn = Table(*COLUMNS)
    for line in lines:
        missed = line.target is not None and not line.target.met(line.ratio)
        drawn.add_row(*line.cells(), style="red" if missed else None)
    return drawn


def footer(machine: Mapping[str, str], rows: int) -> str:
    """Return what the table was measured on."""
    return ", ".join(f"{name} {value}" for name, value in machine.items()) + f"; {rows:,} rows"


def write_json(path: Path, lines: Sequence[Line], machine: Mapping[str, str], rows: int) -> None:
    """Write the results as one JSON object."""
    results = [
        {**dataclasses.asdict(line), "met": None if line.target is None else line.target.met(line.ratio)}
        for line in lines
    ]
    path.write_text(json.dumps({"machine": dict(machine), "rows": rows, "results": results}, indent=2) + "\n")


def write_docs(path: Path, lines: Sequence[Line], machine: Mapping[str, str], rows: int) -> None:
    """Replace what stands between the two marks of the page."""
    text = path.read_text()
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    assert found, f"{path.name} has lost its mark {BEGIN}"
    assert ended, f"{path.name} has lost its mark {END}"
    rule = ["---"] * len(COLUMNS)
    drawn = "\n".join("| " + " | ".join(cells) + " |" for cells in (COLUMNS, rule, *(line.cells() for line in lines)))
    path.write_text(f"{before}{BEGIN}\n{drawn}\n\nMeasured on: {footer(machine, rows)}.\n{END}{after}")
