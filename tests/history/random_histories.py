"""Histories of a log that does everything right, whose clients overlap as the dice fall, and ways to spoil one."""

from __future__ import annotations

import random
from collections.abc import Callable

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


def _last(history: list[Event], change: Callable[[list[Row]], list[Row]]) -> list[Event]:
    """Return the history with other rows in its last read."""
    last = history[-1]
    assert isinstance(last, Read)
    return [*history[:-1], msgspec.structs.replace(last, rows=change(last.rows))]


def _placed(history: list[Event], p: int = 0) -> list[Row]:
    """Return the rows of a partition that were acknowledged."""
    sends = [each for each in history if isinstance(each, Send) and each.result == "ok"]
    return sorted(row for each in sends for row in each.rows if row.partition == p)


def lose(history: list[Event], dice: random.Random) -> list[Event]:
    lost = dice.choice(_placed(history))
    return _last(history, lambda rows: [row for row in rows if row != lost])


def cut(history: list[Event], dice: random.Random) -> list[Event]:
    end = _placed(history)[-dice.randrange(1, 4)]
    return _last(history, lambda rows: [row for row in rows if row.partition or row.offset < end.offset])


def change(history: list[Event], dice: random.Random) -> list[Event]:
    one, other = dice.sample(_placed(history), 2)
    return _last(history, lambda rows: [row._replace(value=other.value) if row == one else row for row in rows])


def double(history: list[Event], dice: random.Random) -> list[Event]:
    again = dice.choice(_placed(history))
    return _last(
        history, lambda rows: [*rows, again._replace(offset=1 + max(row.offset for row in rows if not row.partition))]
    )


def invent(history: list[Event], dice: random.Random) -> list[Event]:
    end = 1 + max(row.offset for row in history[-1].rows if not row.partition)
    return _last(history, lambda rows: [*rows, Row(0, end, f"nobody/{dice.random()}")])


def swap(history: list[Event], dice: random.Random) -> list[Event]:
    """Let two rows, one of which was acknowledged before the other was sent, be at each other's offsets."""
    rows = _placed(history)
    one, other = dice.choice(rows[: len(rows) // 4]).value, dice.choice(rows[-len(rows) // 4 :]).value
    names = {one: other, other: one}

    def swapped(event: Event) -> Event:
        if not hasattr(event, "rows"):
            return event
        if isinstance(event, Send):
            places = {row.value: row.offset for row in rows}
            return msgspec.structs.replace(
                event,
                rows=[
                    row._replace(offset=places[names[row.value]])
                    if row.value in names and row.offset is not None
                    else row
                    for row in event.rows
                ],
            )
        return msgspec.structs.replace(
            event, rows=[row._replace(value=names.get(row.value, row.value)) for row in event.rows]
        )

    return [swapped(event) for event in history]


def refuse(history: list[Event], dice: random.Random) -> list[Event]:
    chosen = dice.choice(_placed(history)).value
    return [
        msgspec.structs.replace(event, result="refused")
        if isinstance(event, Send) and chosen in {row.value for row in event.rows}
        else event
        for event in history
    ]


def send_late(history: list[Event], dice: random.Random) -> list[Event]:
    chosen = dice.choice(_placed(history)).value
    return [
        msgspec.structs.replace(event, began=2e9)
        if isinstance(event, Send) and chosen in {row.value for row in event.rows}
        else event
        for event in history
    ]


def leave_out(history: list[Event], dice: random.Random) -> list[Event]:
    """Leave a row out that a poll returned before another one of its partition."""
    polls = [(n, row) for n, event in enumerate(history) if isinstance(event, Poll) for row in _followed(event.rows)]
    at, dropped = dice.choice(polls)
    rows = [row for row in history[at].rows if row != dropped]
    # The client's first poll says where it begins.
    begin = Assign(history[at].who, 0, 0, TOPIC, dict.fromkeys(range(PARTITIONS), 0))
    return [begin, *history[:at], msgspec.structs.replace(history[at], rows=rows), *history[at + 1 :]]


def _followed(rows: list[Row]) -> list[Row]:
    return [row for row in rows if any(each.partition == row.partition and each.offset > row.offset for each in rows)]


def repeat(history: list[Event], dice: random.Random) -> list[Event]:
    poll = dice.choice([each for each in history if isinstance(each, Poll)])
    return [*history, msgspec.structs.replace(poll, ended=poll.ended + 0.001)]


def forget_commit(history: list[Event], dice: random.Random) -> list[Event]:
    commit = dice.choice([each for each in history if isinstance(each, Commit) and each.result == "ok"])
    late = dict.fromkeys(commit.offsets)
    return [*history, Committed("late", 1e9, 1e9 + 1, GROUP, TOPIC, late)]


def commit_for_others(history: list[Event], dice: random.Random) -> list[Event]:
    return [*history, Committed("late", 1e9, 1e9 + 1, GROUP, TOPIC, {0: 10**6 + dice.randrange(9)})]


SPOILS = {
    lose: "lost",
    cut: "lost",
    change: "changed",
    double: "twice",
    invent: "unsent",
    swap: "order",
    refuse: "refused",
    send_late: "unsent",
    leave_out: "lost or gap",
    repeat: "backwards",
    forget_commit: "commit",
    commit_for_others: "commit",
}
"""Ways to spoil a history, and the rule that it breaks then."""
