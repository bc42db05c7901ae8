"""Losses: an object of a journal is lost, cut or flipped, or its spare is. Of the two one is always left whole.

So nothing may come of it: no error, no other entry in its place. That holds on the store of a journal, and on each of
the stores that decide together. Two things are left out, for they are two faults at once: what is taken in the middle
of an operation at it, and both of a pair one after the other, for who sleeps between the look at the one and at the
other may find neither.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark_log_storage.objects import spare
from pyspark_log_storage.objects.envelope import is_whole
from tests.simulator.invariants import History
from tests.simulator.store import Objects
from tests.simulator.world import World

_PAUSE_SECONDS = 0.05


def lose(world: World) -> None:
    """Let objects of the journals be lost or damaged, one after another, until the world calms down."""
    chance = world.chance
    while world.busy:
        world.clock.pause(chance.uniform(0, 2 * _PAUSE_SECONDS))
        store = chance.choice(world.journal_stores())
        keys = sorted(_that_may_go(world, store, chance.choice(world.histories())))
        if not keys or not world.busy:
            continue
        key = chance.choice(keys)
        data = store.data[key]
        world.taken.setdefault(key, set()).add(data)
        what = chance.choice(["lost", "cut", "flipped"])
        if what == "lost":
            del store.data[key]
        elif what == "cut":
            store.data[key] = data[: chance.randrange(len(data))]
        else:
            position = chance.randrange(len(data))
            store.data[key] = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        world.counts[f"{what} of a journal"] += 1
        world.trace("nemesis", what, key)


def _that_may_go(world: World, store: Objects, history: History) -> Iterator[str]:
    """Yield the keys of a store's objects of a journal, and of their spares, where both are whole."""
    for folder in world.spared(history):
        for key in store.data:
            if not key.startswith(folder) or (folder.endswith("/manifests/") and key not in history.manifests):
                continue
            both = (key, spare.key(history.folder, key))
            if not world.taken.keys().isdisjoint(both):
                continue
            if any(store.in_hand[each] for each in both):
                continue
            if all(is_whole(store.data.get(each, b"")) for each in both):
                yield from both
