"""Groups of a cluster: their names, their journals, and what a migration of the journals does to them."""

import pytest

from pyspark_log_coordinator.group.machine import DeleteGroup
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit
from pyspark_log_storage.errors import InvalidName, UnknownGroup
from tests.support.coordinator.several_nodes import Stores


@pytest.fixture
def stores():
    made = Stores()
    made.with_nodes(1)
    return made


def commit(log, group, offset, create=True):
    return log.group(group, create=create).submit(OffsetCommit({"id": {0: Offset(offset)}})).state


def committed(log, group):
    return log.group(group).refresh().committed("id", 0).offset


def test_a_group_is_created_by_its_first_commit_and_found_by_every_process(stores):
    commit(stores.log(), "g", 7)
    assert committed(stores.log(), "g") == 7
    assert list(stores.log().groups()) == ["g"]


def test_a_name_may_have_any_printable_characters_and_never_becomes_a_path(stores):
    for name in ("../../etc", "a:b/c", "Straße 7"):
        commit(stores.log(), name, 1)
        assert committed(stores.log(), name) == 1
    assert all(name not in key for key in stores.log().store.list("") for name in ("..", "Straße"))


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256])
def test_a_name_that_kafkas_users_cannot_mean_is_refused(stores, name):
    with pytest.raises(InvalidName):
        stores.log().group(name, create=True)


def test_a_group_that_does_not_exist_or_was_deleted_is_an_error_that_names_it(stores):
    log = stores.log()
    with pytest.raises(UnknownGroup, match="group 'g' does not exist"):
        log.group("g")
    commit(log, "g", 7)
    log.group("g").submit(DeleteGroup())
    other = stores.log()
    with pytest.raises(UnknownGroup, match="group 'g' was deleted"):
        other.group("g")
    assert other.group("g", create=True).refresh().offsets == {}
    assert commit(other, "g", 3).committed("id", 0).offset == 3
