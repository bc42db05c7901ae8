"""Journals are followed by the specification: each entry must be allowed, and lead to the state that the product has.

A journal is a sequence of `Step`s, as `journal.history` reads them: from the simulator, from a story, or from a log.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pyspark_log_coordinator.group.state import Group
from pyspark_log_coordinator.journal import history
from pyspark_log_coordinator.journal.history import Step
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication.row_loss import RowsLost
from tests.simulator.ballots import ClusterHistory
from tests.simulator.run import Result
from tests.specification import group_actions, journal_actions, partition_actions, tlc


class Journal(NamedTuple):
    """The journal of a topic or a group, with a name that says where it comes from."""

    name: str
    steps: Sequence[Step]
    may_go_back: bool = False
    """Of a group: whether commits may go back, because rows that were committed have been cut, or its members seek."""


class Followed(NamedTuple):
    """What came of following journals."""

    traces: int
    entries: int
    actions: Counter[str]
    """How often each kind of action was taken."""
    wrong: list[str]
    """For each trace that the specification does not allow: its name, the entry, and what is wrong with it."""


def journals_of(result: Result) -> list[Journal]:
    """Return the journals of topics and groups of a simulated world."""
    found = []
    for each in result.journals:
        steps = [
            Step(number, *told, 0) for number, told in enumerate(zip(each.events, each.states[1:], strict=True), 1)
        ]
        if steps and isinstance(steps[0].state, Topic | Group):
            found.append(Journal(f"world {result.seed}, {each.folder}", steps))
    unclean = any(map(_is_unclean, found))
    return [each._replace(may_go_back=unclean) for each in found]


def stores_of(result: Result) -> list[tuple[str, dict[str, Any]]]:
    """Return what the stores of the journals of a simulated world got, if these are on several stores."""
    cluster = next((each for each in result.journals if isinstance(each, ClusterHistory)), None)
    return [
        (f"world {result.seed}, stores of {each.folder}", journal_actions.trace(each, cluster))
        for each in result.journals
        if cluster is not None and each.writes
    ]


def journals_in(log: Log) -> list[Journal]:
    """Return the journals of topics and groups of a log, as far as they are kept."""
    topics = [(name, log.topic(name).journal) for name in log.topics()]
    groups = [(name, log.group_handle(found).journal) for name, found in log.groups().items()]
    return [Journal(name, list(history.history(each))) for name, each in [*topics, *groups]]


def follow(journals: Iterable[Journal], stores: Sequence[tuple[str, dict[str, Any]]] = ()) -> Followed:
    """Follow journals of topics and groups, and what `stores_of` journals got."""
    topics: list[tuple[str, dict[str, Any]]] = []
    groups: list[tuple[str, dict[str, Any]]] = []
    for name, steps, may_go_back in journals:
        if isinstance(steps[0].state, Topic):
            found = partition_actions.traces(steps)
            topics += [(f"{name}, partition {p}", each) for p, each in enumerate(found) if each["entries"]]
        else:
            one = group_actions.trace(steps, may_go_back=may_go_back)
            groups += [(name, one)] if one["entries"] else []
    wrong = [*_wrong("ReplicationTrace", topics), *_wrong("GroupsTrace", groups), *_wrong("JournalsTrace", stores)]
    entries = [entry for _, trace in (*topics, *groups, *stores) for entry in trace["entries"]]
    actions = Counter(action["kind"] for entry in entries for action in entry["actions"])
    return Followed(len(topics) + len(groups) + len(stores), len(entries), actions, wrong)


def _is_unclean(journal: Journal) -> bool:
    """Return whether an election cut rows that were committed."""
    before: Any = None
    for step in journal.steps:
        for event in step.events if before is not None else ():
            if isinstance(event, RowsLost) and event.start < before.partitions[event.partition].high_watermark:
                return True
        before = step.state
    return False


def _wrong(module: str, traces: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    if not traces:
        return []
    literals = ",\n".join(tlc.literal(trace) for _, trace in traces)
    output = tlc.run(module, "SPECIFICATION Spec\n", {"Traces": _TRACES.format(literals)}).output
    output = re.sub(r"\s+", " ", output)
    wrong = [
        f"{traces[int(trace) - 1][0]}, entry {entry}: {problems}"
        for trace, entry, problems in re.findall(r'<< ?"broken", (\d+), (\d+), "((?:[^"\\]|\\.)*)" ?>>', output)
    ]
    followed = len(re.findall(r'<<"followed", \d+>>', output))
    assert followed + len(wrong) == len(traces), f"{followed} traces followed, {len(wrong)} wrong, of {len(traces)}"
    return wrong


_TRACES = """---- MODULE Traces ----
Traces == <<
{}
>>
====
"""
