"""Histories of a log that does everything right, whose clients overlap as the dice fall, and ways to spoil one."""

from __future__ import annotations

import random

import msgspec

from tests.history.events import Assign, Commit, Committed, Event, Poll, Read, Row, Send

TOPIC, GROUP, PARTITIONS = "t", "g", 2
WRITERS, READERS = 3, 2


def random_history(dice: random.Random, calls: int = 150) -> list[Event]:
    """Return what the clients of such a log saw: each call has its effect at some moment while it lasts."""
    free = dict.fromkeys(
        [f"{kind}-{n}" for kind, count in (("writer", WRITERS), ("reader", READERS)) for n in range(count)], 0.0
    )
    free |= {"scanner": 0.0, "member": 0.0}
    planned = []
    for _ in range(calls):
        who = dice.choice(list(free))
        began = free[who] + dice.uniform(0, 5)
        ended = began + dice.uniform(0.1, 10)
        free[who] = ended + 0.01
        planned.append((dice.uniform(began, ended), who, began, ended))
    log: list[list[str]] = [[] for _ in range(PARTITIONS)]
    places: dict[str, list[int]] = {}
    committed: dict[int, int] = {}
    history: list[Event] = []
    for number, (_, who, began, ended) in enumerate(sorted(planned)):
        match who.split("-")[0]:
            case "writer":
                history += _send(dice, log, f"{who}/{number}", Send(who, began, ended, TOPIC, []))
            case "reader":
                history += _poll(
                    dice, log, places.setdefault(who, [0] * PARTITIONS), Poll(who, began, ended, TOPIC, [])
                )
            case "scanner":
                rows = [Row(p, offset, value) for p in range(PARTITIONS) for offset, value in enumerate(log[p])]
                history.append(Read(who, began, ended, TOPIC, rows))
            case _:
                history.append(_member(dice, log, committed, who, began, ended))
    return [
        *sorted(history, key=lambda event: event.ended),
        Read(
            "last",
            1e9,
            1e9 + 1,
            TOPIC,
            [Row(p, at, value) for p in range(PARTITIONS) for at, value in enumerate(log[p])],
        ),
    ]


def _send(dice: random.Random, log: list[list[str]], name: str, call: Send) -> list[Event]:
    names = [(dice.randrange(PARTITIONS), f"{name}/{n}") for n in range(dice.randrange(1, 4))]
    result = dice.choice(["ok", "ok", "ok", "refused", "unknown"])
    begun = msgspec.structs.replace(call, rows=[Row(p, None, value) for p, value in names], result="unknown")
    rows = []
    if result == "ok" or (result == "unknown" and dice.random() < 0.5):
        for p, value in names:
            rows.append(Row(p, len(log[p]), value))
            log[p].append(value)
    if result == "ok":
        return [begun, msgspec.structs.replace(call, rows=rows)]
    return [msgspec.structs.replace(begun, result=result)]


def _poll(dice: random.Random, log: list[list[str]], places: list[int], call: Poll) -> list[Event]:
    rows = []
    for p in dice.sample(range(PARTITIONS), PARTITIONS):
        end = min(len(log[p]), places[p] + dice.randrange(5))
        rows += [Row(p, offset, log[p][offset]) for offset in range(places[p], end)]
        places[p] = end
    history: list[Event] = [msgspec.structs.replace(call, rows=rows)] if rows else []
    if dice.random() < 0.1:
        places[0] = dice.randrange(len(log[0]) + 1)
        history.append(Assign(call.who, call.ended, call.ended, TOPIC, {0: places[0]}))
    return history


def _member(
    dice: random.Random, log: list[list[str]], committed: dict[int, int], who: str, began: float, ended: float
) -> Event:
    p = dice.randrange(PARTITIONS)
    if dice.random() < 0.5:
        return Committed(who, began, ended, GROUP, TOPIC, {p: committed.get(p)})
    result = dice.choice(["ok", "ok", "refused", "unknown"])
    offset = dice.randint(committed.get(p, 0), max(len(log[p]), committed.get(p, 0)))
    if result == "ok" or (result == "unknown" and dice.random() < 0.5):
        committed[p] = offset
    return Commit(who, began, ended, GROUP, TOPIC, {p: offset}, result)


def _placed(history: list[Event], p: int = 0) -> list[Row]:
    """Return the rows of a partition that were acknowledged."""
    sends = [each for each in history if isinstance(each, Send) and each.result == "ok"]
    return sorted(row for each in sends for row in each.rows if row.partition == p)


def lose(history: list[Event], dice: random.Random) -> list[Event]:
    """Leave an acknowledged row out of the last read."""
    lost, last = dice.choice(_placed(history)), history[-1]
    assert isinstance(last, Read)
    return [*history[:-1], msgspec.structs.replace(last, rows=[row for row in last.rows if row != lost])]


def forget_commit(history: list[Event], dice: random.Random) -> list[Event]:
    commit = dice.choice([each for each in history if isinstance(each, Commit) and each.result == "ok"])
    late = dict.fromkeys(commit.offsets)
    return [*history, Committed("late", 1e9, 1e9 + 1, GROUP, TOPIC, late)]
