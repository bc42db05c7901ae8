"""Losses: an object of a journal is damaged, or a register is lost.

On the one store of a journal somebody restores the object after a while. Until then it is an error that names it, and
nothing is written in its place. On one of several stores nothing comes of it: the others have the same register.

Left out are two faults at once, and what is taken in the middle of an operation at it. Lost objects of the one store
are in `tests/coordinator/journal/test_damage.py`: a process that has just looked may fill their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark_log_coordinator.journal import journal_entry
from pyspark_log_storage import layout
from pyspark_log_storage.objects.envelope import is_whole
from tests.simulator.invariants import History
from tests.simulator.store import Objects

if TYPE_CHECKING:
    from tests.simulator.world import World

_PAUSE_SECONDS = 0.05
_RESTORED = 0.5
"""How often somebody restores a damaged register before `verify --repair` does."""


def lose(world: World) -> None:
    """Let objects of the journals be lost or damaged, one after another, until the world calms down."""
    chance = world.chance
    while world.busy:
        world.clock.pause(chance.uniform(0, 2 * _PAUSE_SECONDS))
        stores = world.journal_stores()
        store = chance.choice(stores)
        history = chance.choice(world.histories())
        keys = sorted(_that_may_go(world, store, history))
        if not keys or not world.busy:
            continue
        key = chance.choice(keys)
        data = store.data[key]
        what = chance.choice(["cut", "flipped", *(["lost"] if len(stores) > 1 else [])])
        if what == "lost" and _is_of_newest(history, key):
            continue
        world.taken.setdefault(key, set()).add(data)
        damaged = _damaged(world, data, what)
        if damaged is None:
            del store.data[key]
        else:
            store.data[key] = damaged
        world.counts[f"{what} of a journal"] += 1
        world.trace("nemesis", what, key)
        if len(stores) == 1 or (damaged is not None and chance.random() < _RESTORED):
            world.clock.pause(chance.uniform(0, 2 * _PAUSE_SECONDS))
            if store.data.get(key) == damaged:
                store.data[key] = data


def _is_of_newest(history: History, key: str) -> bool:
    """Return whether a register is of the newest entry: who asked another store before that had it gets two noes."""
    slot = journal_entry.slot_of(key.removeprefix(layout.entries(history.folder, history.generation)))
    return slot is not None and slot >= history.number


def are_damaged(world: World, store: Objects) -> bool:
    """Return whether a store has damaged objects of the journals."""
    return any(key in store.data and not is_whole(store.data[key], key) for key in world.taken)


def _damaged(world: World, data: bytes, what: str) -> bytes | None:
    if what == "lost":
        return None
    position = world.chance.randrange(len(data))
    return data[:position] if what == "cut" else data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def _that_may_go(world: World, store: Objects, history: History) -> Iterator[str]:
    """Yield the keys of a store's objects of a journal that a fault may meet: of several stores registers on all."""
    stores = world.journal_stores()
    if len(stores) > 1:
        if not all(layout.MARKER in each.data for each in stores):
            return
        folder = layout.entries(history.folder, history.generation)
        met = {journal_entry.slot_of(key.removeprefix(folder)) for key in world.taken if key.startswith(folder)}
        yield from (
            key
            for key in store.data
            if key.startswith(folder)
            and journal_entry.slot_of(key.removeprefix(folder)) not in met
            and all(each.data.get(key) == store.data[key] and not each.in_hand[key] for each in stores)
        )
        return
    for kind in ("entries", "snapshots"):
        folder = f"{history.folder}{kind}/"
        for key in store.data:
            if key.startswith(folder) and not store.in_hand[key]:
                yield key
