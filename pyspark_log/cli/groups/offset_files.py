"""Files of offsets, in the format of kafka-consumer-groups: CSV lines that `--export` prints and `--from-file` reads.

    topic,partition,offset              of one group
    group,topic,partition,offset        of several groups

A name that has a comma or a quotation mark is quoted.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Offsets = dict[tuple[str, int], int]
"""By topic and partition."""
STDIN = "-"
_PARTITION = re.compile(r"[0-9]{1,9}")
_OFFSET = re.compile(r"[0-9]{1,18}")
_FIELDS = {3: "topic,partition,offset", 4: "group,topic,partition,offset"}


def print_offsets(groups: Mapping[str, Offsets], *, named: bool) -> None:
    """Print the offsets of groups; each line names its group if `named` is set."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for group, offsets in groups.items():
        for (topic, number), offset in sorted(offsets.items()):
            writer.writerow([*([group] if named else []), topic, number, offset])
    sys.stdout.flush()


def read_offsets(file: str) -> dict[str | None, Offsets]:
    """Return the offsets in a file by group; None stands for the group that the file does not name.

    `-` is stdin. Raises `InvalidInput` for a line that is wrong, or a partition that has two.
    """
    if file == STDIN:
        return _read(sys.stdin, "stdin")
    with Path(file).open(encoding="utf-8", errors="replace", newline="") as lines:
        return _read(lines, file)


def _read(lines: Iterable[str], name: str) -> dict[str | None, Offsets]:
    found: dict[str | None, Offsets] = {}
    expected = 0
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        fields = _fields(text)
        wanted = " or ".join(_FIELDS.values()) if not expected else _FIELDS[expected]
        if len(fields) not in _FIELDS or len(fields) != (expected or len(fields)) or not _are_offsets(fields):
            raise InvalidInput(f"{name}, line {number}: {text.strip()[:100]!r} is not {wanted}; correct it")
        expected = len(fields)
        *group, topic, partition, offset = fields
        offsets = found.setdefault(group[0] if group else None, {})
        if (topic, int(partition)) in offsets:
            raise InvalidInput(
                f"{name}, line {number}: topic {topic!r}, partition {partition} has an offset in an earlier line too; "
                "remove one of them"
            )
        offsets[topic, int(partition)] = int(offset)
    return found


def _fields(text: str) -> list[str]:
    try:
        return [each.strip() for each in next(csv.reader([text], strict=True))]
    except csv.Error:
        return []


def _are_offsets(fields: list[str]) -> bool:
    *names, partition, offset = fields
    return all(names) and bool(_PARTITION.fullmatch(partition) and _OFFSET.fullmatch(offset))
