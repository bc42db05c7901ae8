"""Families of metrics as Prometheus knows them: one name, and a number for each combination of labels.

`text` prints them in Prometheus' format, version 0.0.4.
Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_VALUE = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class MetricKind(enum.Enum):
    """How a number changes."""

    GAUGE = "gauge"
    COUNTER = "counter"
    """It only grows. The family's name ends with `_total`."""


class Sample(NamedTuple):
    """A number, and the values of its family's labels."""

    labels: tuple[str, ...]
    value: float


class Family(msgspec.Struct, frozen=True):
    """A family, with its samples."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    samples: list[Sample] = []

    def add(self, value: float, *labels: object) -> None:
        """Add a sample; `labels` are the values of the labels in their order."""
        assert len(labels) == len(self.labels), "each label has a value"
        self.samples.append(Sample(tuple(map(str, labels)), value))


def text(families: Iterable[Family]) -> str:
    """Return the families that have samples, in their order."""
    return "".join(f"{line}\n" for family in families if family.samples for line in _lines(family))


def document(family: Family) -> dict[str, Any]:
    """Return a family as a JSON document."""
    samples = [
        {"labels": dict(zip(family.labels, values, strict=True)), "value": value} for values, value in family.samples
    ]
    return {"name": family.name, "type": family.kind.value, "help": family.help, "samples": samples}


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help.translate(_HELP)}"
    yield f"# TYPE {family.name} {family.kind.value}"
    for values, value in family.samples:
        pairs = ",".join(f'{name}="{each.translate(_VALUE)}"' for name, each in zip(family.labels, values, strict=True))
        yield f"{family.name}{{{pairs}}} {value}" if pairs else f"{family.name} {value}"
