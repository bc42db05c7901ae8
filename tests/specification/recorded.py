"""Journals of real processes, recorded in recorded/: a file each, the events of an entry in a line.

Those there are of logs that `make torture` attacked: nodes were wiped, left alone and damaged, processes killed.
"""

from collections.abc import Iterator
from pathlib import Path
from types import GenericAlias
from typing import Any

import msgspec

from pyspark_log_coordinator.group import machine as group_machine
from pyspark_log_coordinator.journal.history import Step
from pyspark_log_coordinator.topic import machine as topic_machine
from tests.specification.following import Journal

FOLDER = Path(__file__).with_name("recorded")
OF: dict[str, Any] = {"topic": topic_machine, "group": group_machine}


def journals() -> list[Journal]:
    """Return the recorded journals. The name of a file begins with what it is of: a topic or a group."""
    return [Journal(each.stem, list(_steps(each))) for each in sorted(FOLDER.glob("*.jsonl"))]


def _steps(path: Path) -> Iterator[Step]:
    module = OF[path.stem.split("-")[0]]
    decoder = msgspec.json.Decoder(GenericAlias(list, (module.Event,)))
    state = module.MACHINE.initial
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        events = decoder.decode(line)
        for event in events:
            state = module.evolve(state, event)
        yield Step(number, events, state, 0)
