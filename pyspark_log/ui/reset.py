"""Resets of a group's offsets: a plan is shown first, and carried out once, if the group is still where it was.

A plan has a name that only its page has. Carrying it out takes the plan away, so a page that is loaded again, or sent
twice, changes nothing more.
"""

from __future__ import annotations

import re
import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from pyspark_log.documents.text import number, time_ms_of
from pyspark_log.reading.groups import LATEST, check_reset, lags, reset_to
from pyspark_log.reading.groups import reset as reset_offsets
from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_log_coordinator.log.log import Log

PLANS_KEPT = 100
_RANGE = re.compile(r"([0-9]{1,9})(?:\s*[-\u2013]\s*([0-9]{1,9}))?")
Place = tuple[str, int]


class Plan(msgspec.Struct, frozen=True):
    """Where a group is in some partitions of a topic, None where it has committed nothing, and where it will be."""

    group: str
    topic: str
    before: dict[int, int | None]
    after: dict[int, int]
    is_done: bool = False

    @property
    def forth(self) -> int:
        """The rows that the group will skip."""
        return sum(max(0, new - old) for old, new in self._moves() if old is not None)

    @property
    def back(self) -> int:
        """The rows that the group will read again."""
        return sum(max(0, old - new) for old, new in self._moves() if old is not None)

    def _moves(self) -> list[tuple[int | None, int]]:
        return [(self.before[each], self.after[each]) for each in self.after]


class Plans:
    """The newest plans, by their names. Used by any number of threads: each call is one step of a dictionary."""

    def __init__(self) -> None:
        self._plans: OrderedDict[str, Plan] = OrderedDict()

    def add(self, plan: Plan) -> str:
        """Keep a plan. Return its name."""
        name = secrets.token_urlsafe(18)
        self._plans[name] = plan
        while len(self._plans) > PLANS_KEPT:
            self._plans.popitem(last=False)
        return name

    def find(self, name: str, group: str, *, is_done: bool) -> Plan | None:
        """Return a plan of a group that has been carried out, or has not."""
        found = self._plans.get(name)
        return found if found is not None and (found.group, found.is_done) == (group, is_done) else None

    def take(self, name: str, group: str) -> Plan:
        """Take away a plan of a group to carry it out. Raises `InvalidInput` if that was done before."""
        found = self._plans.pop(name, None) if self.find(name, group, is_done=False) is not None else None
        if found is None:
            raise InvalidInput("this reset was carried out before, or its preview is too old; preview it again")
        return found


def planned(log: Log, group: str, form: Mapping[str, str]) -> Plan:
    """Return what a form asks for. Raises `LogError`, also if the group has members."""
    topic = form.get("topic", "")
    committed = _committed(log, group)
    every = range(len(log.topic(topic).partitions))
    numbers = _numbers(form.get("partitions", ""), every)
    offsets = _new_offsets(log, [(topic, each) for each in numbers], form, committed)
    check_reset(log, group, offsets)
    after = {number: offset for (_, number), offset in offsets.items()}
    return Plan(group, topic, {each: committed.get((topic, each)) for each in after}, after)


def carry_out(log: Log, plan: Plan) -> Plan:
    """Set the offsets of a plan. Return it with what is committed now.

    Raises `InvalidInput` if the group has moved since the plan was made, and what `reset` raises.
    """
    now = _committed(log, plan.group)
    for each, before in plan.before.items():
        if (at := now.get((plan.topic, each))) != before:
            raise InvalidInput(
                f"the group has moved since the preview: in partition {each} of {plan.topic} it was at "
                f"{_offset(before)} and is at {_offset(at)}; preview the reset again"
            )
    reset_offsets(log, plan.group, {(plan.topic, each): offset for each, offset in plan.after.items()})
    found = _committed(log, plan.group)
    after = {each: found.get((plan.topic, each), plan.after[each]) for each in plan.after}
    return msgspec.structs.replace(plan, after=after, is_done=True)


def _committed(log: Log, group: str) -> dict[Place, int]:
    return {(each.topic, each.partition): each.committed for each in lags(log, log.group(group).state)}


def _offset(offset: int | None) -> str:
    return "no offset" if offset is None else number(offset)


def _numbers(text: str, every: range) -> list[int]:
    """Return the partitions in a text such as "0-3, 7": all of them if it is empty. Raises `InvalidInput`."""
    chosen: set[int] = set()
    for part in filter(None, map(str.strip, text.split(","))):
        found = _RANGE.fullmatch(part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
        if first > last or last not in every:
            raise InvalidInput(f"{part[:40]!r} is no partition of the topic; it has those from 0 to {every[-1]}")
        chosen.update(range(first, last + 1))
    return sorted(chosen) if chosen else list(every)


def _new_offsets(
    log: Log, partitions: list[Place], form: Mapping[str, str], committed: Mapping[Place, int]
) -> dict[Place, int]:
    """Return the offsets that a form asks for. Raises `InvalidInput`."""
    to, value = form.get("to", ""), form.get("value", "").strip()
    if to in {"earliest", "latest"}:
        return reset_to(log, partitions, committed, offset=LATEST if to == "latest" else 0)
    if to == "time":
        return reset_to(log, partitions, committed, ms=time_ms_of(value))
    sign, digits = (-1, value[1:]) if to == "shift" and value.startswith("-") else (1, value)
    if to not in {"offset", "shift"} or not (digits.isascii() and digits.isdigit() and len(digits) < 19):  # noqa: PLR2004
        raise InvalidInput(
            f"{value[:40]!r} is not a number of rows; choose where the group is to continue, and a number"
        )
    if to == "offset":
        return reset_to(log, partitions, committed, offset=int(digits))
    return reset_to(
        log, [key for key in partitions if key in committed] or partitions, committed, shift=sign * int(digits)
    )
