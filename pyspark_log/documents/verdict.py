"""The verdict on a cluster: what is wrong and what to do, from nodes, journals, disks, ISRs, and how old all that is.

Nothing that is not known is good: what was not read, or too long ago, is unknown.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_log.documents.text import counted, duration, named, number
from pyspark_log_coordinator.log.partition_health import Trouble

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark_log.documents.figures import Figures

NAMED_MAX = 3
"""So many topics or groups are named in a sentence."""


class Level(enum.Enum):
    """How bad a finding is, the worst first."""

    BAD = "bad"
    WARN = "warn"
    UNKNOWN = "unknown"
    GOOD = "good"


class Finding(NamedTuple):
    """Something that somebody should know: what is so, and what to do."""

    level: Level
    words: str
    remedy: str = ""


def unread(problem: str) -> Finding:
    """Return the verdict on a cluster of which nothing has been read yet, perhaps because of a `problem`."""
    if problem:
        return Finding(Level.BAD, f"The cluster cannot be read: {problem}")
    return Finding(Level.UNKNOWN, "The cluster is being read for the first time.")


def verdict(
    nodes: Iterable[Mapping[str, Any]],
    journals: Sequence[Mapping[str, Any]],
    topics: Mapping[str, tuple[Figures, str]],
    unreadable_groups: Sequence[str],
    problem: str,
    age_ms: int,
) -> list[Finding]:
    """Return the findings, the worst first: a good one only if there is no other.

    `topics` have figures and a problem; `age_ms` is how long nothing could be read, 0 if it can be.
    """
    found = [*_of_journals(journals), *_of_nodes(nodes), *_of_topics(topics)]
    if problem:
        found.append(Finding(Level.BAD, f"The cluster's journal cannot be read: {problem}"))
    elif age_ms:
        words = f"Nothing could be read for {duration(age_ms)}: what is shown is what was so then."
        found.append(Finding(Level.UNKNOWN, words, "If this lasts, check the connection to the stores."))
    if unreadable_groups:
        words = f"{counted(len(unreadable_groups), 'group')} cannot be read: {_named(unreadable_groups)}."
        found.append(Finding(Level.WARN, words))
    good = "Every node answers, and every partition has a leader and all of its replicas in sync."
    return sorted(found, key=lambda each: list(Level).index(each.level)) or [Finding(Level.GOOD, good)]


def _of_journals(journals: Sequence[Mapping[str, Any]]) -> Iterable[Finding]:
    silent = [each["node"] for each in journals if each["missing"] is not None]
    left = spare(journals)
    if silent and left < 0:
        words = (
            f"{len(silent)} of {len(journals)} journal nodes do not vote ({', '.join(silent)}), and a majority must."
        )
        yield Finding(Level.BAD, f"{words} Nothing can be read or written.", "Bring their stores back.")
    elif silent:
        more = f"{left} more may fail" if left else "one more failure stops all reads and writes"
        verb = "does" if len(silent) == 1 else "do"
        words = f"In the journals {named('node', silent)} {verb} not vote; {more}."
        yield Finding(Level.WARN, words, "Bring the store back, or move the journals to other nodes.")


def spare(journals: Sequence[Mapping[str, Any]]) -> int:
    """Return how many more journal nodes may fail before nothing can be read or written, below 0 if that is so."""
    voting = sum(each["missing"] is None for each in journals)
    return voting - (len(journals) // 2 + 1)


def _of_nodes(nodes: Iterable[Mapping[str, Any]]) -> Iterable[Finding]:
    for each in nodes:
        name = f"Node {each['node']}"
        match each["state"]:
            case "missing":
                led = each["has"].leads
                words = f"{name} does not answer"
                words += f", and still leads {counted(led, 'partition')}" if led else ""
                remedy = (
                    "The next writer elects other leaders; bring its store back." if led else "Bring its store back."
                )
                yield Finding(Level.BAD, f"{words}.", remedy)
            case "full":
                remedy = "Free space on it, or shorten the retention of its largest topics."
                yield Finding(Level.BAD, f"{name} has a full disk.", remedy)
            case "fenced":
                remedy = f"Return it with pyspark-log nodes unfence {each['node']}."
                yield Finding(Level.WARN, f"{name} is fenced: it gets no new rows.", remedy)
            case "unknown":
                yield Finding(Level.UNKNOWN, f"{name}: nobody knows whether it answers.")


_TROUBLES = (
    (Trouble.UNAVAILABLE, Level.BAD, "without a leader: they can be neither read nor written"),
    (
        Trouble.UNDER_MIN_ISR,
        Level.BAD,
        "with fewer replicas in sync than min.insync.replicas: writes with acks=all fail",
    ),
    (Trouble.UNDER_REPLICATED, Level.WARN, "under-replicated: a replica is not in sync, or its node does not answer"),
)


def _of_topics(topics: Mapping[str, tuple[Figures, str]]) -> Iterable[Finding]:
    unreadable = [name for name, (_, problem) in topics.items() if problem]
    if unreadable:
        words = f"{counted(len(unreadable), 'topic')} cannot be read: {_named(unreadable)}."
        yield Finding(Level.BAD, words, topics[unreadable[0]][1])
    for kind, level, words in _TROUBLES:
        found = {name: count for name, (figures, _) in topics.items() if (count := figures.troubles.get(kind, 0))}
        if found:
            partitions = counted(sum(found.values()), "partition")
            yield Finding(level, f"{partitions} of {_named(list(found))} {words}.")


def _named(names: Sequence[str]) -> str:
    more = f" and {number(len(names) - NAMED_MAX)} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
