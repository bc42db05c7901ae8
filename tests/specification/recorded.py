"""Journals that were recorded while real processes wrote them, in recorded/: one file each, an entry in a line.

Those there are of a log that `make torture` attacked: nodes were wiped, left alone and damaged, processes killed.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from pyspark_log_coordinator.group.machine import MACHINE as GROUP
from pyspark_log_coordinator.journal.history import Step
from pyspark_log_coordinator.topic.machine import MACHINE as TOPIC
from tests.specification.following import Journal

FOLDER = Path(__file__).with_name("recorded")
MACHINES: dict[str, Any] = {"topic": TOPIC, "group": GROUP}


def write(path: Path, steps: Iterable[Step]) -> None:
    """Write a journal, all of its entries from the first one."""
    path.write_bytes(b"".join(msgspec.json.encode(step.events) + b"\n" for step in steps))


def journals() -> list[Journal]:
    """Return the recorded journals. What a file is of, a topic or a group, is how its name begins."""
    found = []
    for path in sorted(FOLDER.glob("*.jsonl")):
        machine = MACHINES[path.stem.split("-")[0]]
        found.append(Journal(path.stem, list(_steps(machine, path.read_bytes().splitlines()))))
    return found


def _steps(machine: Any, lines: Iterable[bytes]) -> Iterator[Step]:
    state = machine.initial
    for number, line in enumerate(lines, 1):
        events = machine.decode_events(line)
        for event in events:
            state = machine.evolve(state, event)
        yield Step(number, events, state, 0)
