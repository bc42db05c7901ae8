"""A list's journal in one folder, or in several, as many processes use it."""

from collections.abc import Sequence

from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.place import JournalPlace, OneStore, SeveralStores
from pyspark_log_coordinator.journal.quorum import Member, Members
from pyspark_log_storage import layout
from pyspark_log_storage.objects import node
from pyspark_log_storage.objects.node import Marker
from pyspark_log_storage.stores.local import LocalStore
from tests.support.coordinator.item_list import FOLDER, MACHINE, AddItems, ItemList, MoveJournal


def begin(roots: Sequence[str]) -> None:
    """Mark several folders as nodes; one alone needs no marker."""
    for number, root in enumerate(roots if len(roots) > 1 else []):
        LocalStore(root).create(layout.MARKER, node.encode(Marker("c", str(number), f"incarnation-{number}")))


def open_at(roots: Sequence[str]) -> Journal[ItemList, AddItems | MoveJournal]:
    """Return the journal as a process sees it that has just begun."""
    stores = [LocalStore(root) for root in roots]
    place: JournalPlace = OneStore(stores[0])
    if len(stores) > 1:
        place = SeveralStores(Members([Member(store, str(i), f"incarnation-{i}") for i, store in enumerate(stores)]))
    return Journal(place, FOLDER, MACHINE, real_environment())


def open_moving(generations: Sequence[Sequence[str]]) -> Journal[ItemList, AddItems | MoveJournal]:
    """Return the journal as a process sees it that knows its folders in each generation, and begins at the first."""

    def place(generation: int) -> JournalPlace:
        members = [
            Member(LocalStore(root), root[-1], f"incarnation-{root[-1]}") for root in generations[generation - 1]
        ]
        return SeveralStores(Members(members), generation)

    return Journal(place(1), FOLDER, MACHINE, real_environment(), follow=place)
