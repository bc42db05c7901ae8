"""What metrics look like as text: Prometheus' format, version 0.0.4, and JSON.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark_log.metrics.family import Family

_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_VALUE = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


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
