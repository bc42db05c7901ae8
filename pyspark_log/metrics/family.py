"""A family of metrics as Prometheus knows it: one name, and a number for each combination of labels."""

from __future__ import annotations

import enum
from typing import NamedTuple

import msgspec


class Kind(enum.Enum):
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
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    samples: list[Sample] = []

    def add(self, value: float, *labels: object) -> None:
        """Add a sample; `labels` are the values of the labels in their order."""
        assert len(labels) == len(self.labels), "each label has a value"
        self.samples.append(Sample(tuple(map(str, labels)), value))
