"""Journals that move to other journal nodes: cut short anywhere, without a store, under the feet of who sleeps."""

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from pyspark_log_coordinator.audit import verify
from pyspark_log_coordinator.cluster.machine import StartJournalMigration
from pyspark_log_coordinator.journal import journal_nodes
from pyspark_log_coordinator.journal.history import state_at
from pyspark_log_coordinator.journal.journal import Journal
from pyspark_log_coordinator.journal.place import SeveralStores
from pyspark_log_coordinator.journal.quorum import Member, Members
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.maintenance import cluster_cleanup, journal_migration
from pyspark_log_coordinator.rebuild import execute
from pyspark_log_coordinator.rebuild.survey import survey
from pyspark_log_coordinator.topic.machine import AlterConfig, MoveTopicJournal
from pyspark_log_storage import layout
from pyspark_log_storage.errors import (
    InvalidInput,
    InvalidOption,
    LogError,
    NodeMissing,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    UnknownTopic,
    UnknownVersion,
)
from pyspark_log_storage.memory import MemoryStore
from tests.coordinator.calls import ShuffledCalls
from tests.coordinator.fake_environment import fake_environment
from tests.coordinator.item_list import FOLDER, MACHINE, AddItems, MoveJournal
from tests.coordinator.local_stores import begin, open_moving
from tests.coordinator.log.test_bootstrap import URLS, Disks, patient
from tests.coordinator.several_nodes import one_after_another
from tests.coordinator.three_stores import mark

NEW = ("/disk/3", "/disk/4", "/disk/5")
ROOT = Path(__file__).parents[3]
PROCESSES, EACH = 10, 40


class Stores(Disks):
    """Stores that go at a certain call: away, or the process that makes it ends."""

    def __init__(self):
        super().__init__(*URLS)
        self.calls = {}
        self.away_from = {}
        self.creates_left = 10**9

    def open(self, url):
        store = super().open(url)
        for name in ("read", "create", "list", "delete"):
            setattr(store, name, self._counted(url, name, getattr(store, name)))
        return store

    def _counted(self, url, name, call):
        def counted(*args, **more):
            self.calls[url] = self.calls.get(url, 0) + 1
            if self.calls[url] >= self.away_from.get(url, 10**9):
                raise StoreUnavailable(url, "", "it is away")
            if name == "create":
                if self.creates_left == 0:
                    raise StoreRefused(url, "", "the process has ended")
                self.creates_left -= 1
            return call(*args, **more)

        return counted

    def bring_back(self):
        self.away_from.clear()
        self.creates_left = 10**9


@pytest.fixture
def six():
    """A cluster of six nodes with two topics, and one that was deleted; its journals are on the first three."""
    return cluster_of_six()


def cluster_of_six():
    disks = Stores()
    disks.found()
    log = disks.log(create=True)
    for url in NEW:
        node_admin.join(log, url)
    for name in ("t", "u", "gone"):
        log.create_topic(name, 1)
    log.delete_topic("gone")
    write(log, "t", 1)
    return disks


def write(log, name, value):
    """Make an entry in a topic's journal."""
    return log.topic(name).submit(AlterConfig({"retention.ms": str(value)}))


def written(log, name):
    return log.topic(name).journal.state.config.retention_ms


def move(disks, *ids, log=None):
    return journal_migration.migrate(log or disks.log(), ids)


def assert_whole(disks, *urls, value=1):
    """Everything is where it should be, for who is given any of the addresses."""
    for given in (urls, *((url,) for url in urls)):
        log = disks.log(*given)
        assert sorted(log.topics()) == ["t", "u"]
        assert written(log, "t") == value
    assert verify.verify_cluster(log).sound
    for name in ("t", "u"):
        assert verify.verify(log, log.topic(name)).sound


# What a move does


def test_the_journals_go_on_at_the_new_nodes(six):
    log = six.log()
    done = move(six, "3", "4", "5", log=log)
    assert (done.changed, done.topics, done.nodes.urls) == (True, 2, NEW)
    assert log.journals.nodes.urls == NEW
    assert_whole(six, *URLS, *NEW)
    six.away = set(URLS)
    assert_whole(six, *NEW)
    write(six.log(*NEW), "t", 2)
    six.log(*NEW).create_topic("new", 1)
    assert written(six.log("/disk/4"), "t") == 2


def test_a_move_to_where_they_are_changes_nothing(six):
    before = six.log().cluster.number
    done = move(six, "2", "0", "1")
    assert (done.changed, done.topics) == (False, 0)
    assert six.log().cluster.number == before


def test_they_move_back_and_forth(six):
    slept = six.log()
    slept.topic("t")
    for ids in (("3", "4", "5"), ("0", "3", "4"), ("0", "1", "2"), ("0", "1", "2", "4", "5")):
        assert move(six, *ids).changed
        write(six.log(), "u", len(ids))
    assert six.log().journals.nodes.generation == 5
    assert written(slept, "t") == 1
    assert slept.topic("t").journal.place.generation == 5
    assert_whole(six, *URLS, "/disk/4", "/disk/5")


@pytest.mark.parametrize("how", ["empty", "only the marker", "away", "marker damaged"])
def test_who_was_given_the_addresses_before_goes_on_when_nodes_that_left_are_gone(six, how):
    move(six, "2", "3", "4")
    for url in ("/disk/a", "/disk/b"):
        marker = six.at[url].read(layout.KEY)
        for key in list(six.at[url].list("")):
            six.at[url].delete(key)
        if how in {"only the marker", "marker damaged"}:
            six.at[url].create(layout.KEY, marker if how == "only the marker" else marker[:-1])
        elif how == "away":
            six.away.add(url)
    write(six.log(), "t", 2)
    assert written(six.log("/disk/b", "/disk/c"), "t") == 2


def test_an_address_of_another_cluster_is_refused_after_a_move_too(six):
    move(six, "2", "3", "4")
    six.log("/cluster", create=True)
    with pytest.raises(InvalidOption, match="/cluster is none"):
        six.log("/disk/c", "/cluster")


def test_a_node_that_was_lost_is_replaced(six):
    six.away = {"/disk/b"}
    move(six, "0", "2", "3")
    six.away = {"/disk/b", "/disk/a"}
    log = six.log("/disk/c")
    assert log.journals.nodes.urls == ("/disk/a", "/disk/c", "/disk/3")
    write(log, "t", 2)


def test_a_node_that_was_renewed_holds_journals_again(six):
    six.at["/disk/b"]._objects.clear()
    log = six.log()
    assert list(log.journals.missing_nodes()) == ["1"]
    node_admin.renew(log, "1")
    assert list(six.log().journals.missing_nodes()) == ["1"]
    assert move(six, "0", "1", "2").changed
    assert six.log().journals.missing_nodes() == {}
    six.away = {"/disk/a"}
    write(six.log("/disk/b", "/disk/c"), "t", 2)


def test_older_versions_cannot_be_read_any_more_and_the_error_names_the_oldest(six):
    log = six.log()
    for value in range(5):
        write(log, "t", value)
    moved = log.topic("t").journal.number + 1
    move(six, "3", "4", "5")
    write(log, "t", 9)
    journal = log.topic("t").journal
    assert [state_at(journal, number).config.retention_ms for number in (moved, moved + 1)] == [4, 9]
    with pytest.raises(UnknownVersion, match=f"versions {moved} "):
        state_at(journal, moved - 1)


def test_what_the_journals_leave_behind_is_what_says_where_they_are(six):
    log = six.log()
    for value in range(20):
        write(log, "t", value)
    number = log.topic("t").journal.number + 1
    done = move(six, "3", "4", "5")
    assert done.removed > 100
    folder = layout.topic_journal("t", log.topic("t").topic_id)
    for url in URLS:
        left = {key.removeprefix(folder) for key in six.at[url].list(folder)}
        assert any(layout.number(number) in key for key in left)
        assert all(layout.number(number) in key or key.startswith("snapshots/") for key in left), left
        assert len([key for key in left if key.startswith("snapshots/")]) <= 1


# What is refused


def test_nodes_that_are_not_there_are_refused_and_nothing_changes(six):
    before = six.log().cluster.number
    for ids in (("3", "4", "9"), ("3", "4")):
        with pytest.raises(InvalidOption):
            move(six, *ids)
    six.at["/disk/4"]._objects.clear()
    with pytest.raises(NodeMissing):
        move(six, "3", "4", "5")
    assert six.log().cluster.number == before


def test_journals_of_a_cluster_on_one_store_stay_there():
    disks = Disks("/cluster")
    log = disks.log("/cluster", create=True)
    for url in NEW:
        node_admin.join(log, url)
    with pytest.raises(InvalidOption, match="at the cluster root"):
        journal_migration.migrate(log, ("1", "2", "3"))


def test_a_journal_node_is_removed_after_the_move_and_not_before(six):
    log = six.log()
    node_admin.set_fenced(log, "1", fenced=True)
    with pytest.raises(InvalidInput, match="is a journal node"):
        node_admin.remove(log, "1")
    move(six, "0", "2", "3")
    for name in ("t", "u"):
        log.delete_topic(name)
    assert node_admin.remove(log, "1")


# Cut short, or without a store


def finish(disks, value=1):
    """Do it again, from any of the addresses, and hold that all is there."""
    disks.bring_back()
    log = disks.log()
    assert sorted(log.topics()) == ["t", "u"]  # half-moved journals are read, too
    assert written(log, "t") == value
    assert journal_migration.migrate(log, ("0", "3", "4")).nodes.generation == 2
    assert_whole(disks, *URLS, "/disk/3", "/disk/4", value=value)


def creates_of_a_move():
    disks = cluster_of_six()
    move(disks, "0", "3", "4")
    return 10**9 - disks.creates_left


@pytest.mark.parametrize("part", range(4))
def test_a_move_that_is_killed_anywhere_is_finished_by_another(part):
    for creates in range(part, creates_of_a_move(), 20):
        disks = cluster_of_six()
        slept = disks.log()
        slept.topic("t")
        log = disks.log()
        disks.creates_left = creates
        with contextlib.suppress(LogError):
            journal_migration.migrate(log, ("0", "3", "4"))
        finish(disks)
        assert written(slept, "t") == 1
        write(slept, "t", 2)
        assert written(disks.log("/disk/3"), "t") == 2


@pytest.mark.parametrize("url", [*URLS, "/disk/3", "/disk/4"])
def test_any_store_may_be_lost_at_any_call_of_a_move(url):
    healthy = cluster_of_six()
    before = dict(healthy.calls)
    move(healthy, "0", "3", "4")
    for call in range(before.get(url, 0) + 1, healthy.calls[url], 23):
        disks = cluster_of_six()
        log = disks.log()
        disks.away_from = {url: call}
        with contextlib.suppress(LogError):
            journal_migration.migrate(log, ("0", "3", "4"))
        # Whatever came of it: without the store all is there, and it is finished without it, or with it.
        disks.calls[url] = 10**8
        disks.away_from = {url: 1}
        others = [each for each in URLS if each != url]
        reader = disks.log(*others)
        assert written(reader, "t") == 1
        write(reader, "u", 7)
        finish(disks)
        assert written(disks.log("/disk/3", "/disk/4"), "u") == 7


# Who slept


def test_who_slept_goes_on_where_the_journals_are(six):
    slept = [six.log() for _ in range(3)]
    for log in slept:
        log.topic("t")
    move(six, "3", "4", "5")
    write(six.log(), "t", 2)
    handles = [log._handles["t"] for log in slept]
    assert handles[0].refresh().config.retention_ms == 2
    assert handles[1].submit(AlterConfig({"retention.ms": "3"})).state.config.retention_ms == 3
    slept[2].create_topic("new", 1)
    assert written(six.log("/disk/5"), "t") == 3
    assert "new" in six.log("/disk/5").topics()


@pytest.mark.parametrize("also", [(), ("3", "4", "0")], ids=["one move", "two moves"])
def test_who_slept_until_the_stores_were_gone_that_he_knew_finds_the_journals(six, also):
    log = Log([six.open(URLS[0])], fake_environment(), open_node=six.open, probe=one_after_another)
    log.open(create=False)
    handle = log.topic("t")
    move(six, "3", "4", "5")
    if also:
        move(six, *also)
    write(six.log(*NEW), "t", 2)
    for url in URLS:
        for key in list(six.at[url].list("")):
            if key == layout.KEY or key.startswith(("topics/", "cluster/entries", "cluster/snapshots")):
                six.at[url].delete(key)
    assert handle.refresh().config.retention_ms == 2
    assert written(log, "t") == 2


def test_nobody_leads_by_the_entry_with_which_a_journal_begins_for_several_write_it(six):
    logs = [six.log(), six.log()]
    handles = [log.topic("t") for log in logs]
    log = six.log()
    log.cluster.submit(StartJournalMigration(("0", "3", "4"), log.journals.nodes.nodes))
    number = handles[0].submit(MoveTopicJournal(2)).number
    for handle in handles:
        handle.refresh()
        assert handle.journal.place.generation == 2
        assert not handle.journal.entries.leads(number + 1)
    assert handles[0].submit(AlterConfig({"retention.ms": "5"})).number == number + 1
    assert handles[0].journal.entries.leads(number + 2)
    finish(six, 5)


def test_who_slept_and_finds_none_of_the_stores_says_so(six):
    log = six.log()
    handle = log.topic("t")
    move(six, "3", "4", "5")
    six.away = {*URLS, *NEW}
    with pytest.raises(StoreError):
        handle.refresh()
    six.away = set(URLS)
    with pytest.raises(StoreError):
        six.log(*URLS)


def test_who_slept_holds_on_to_a_topic_that_was_deleted_meanwhile_in_vain(six):
    slept = six.log()
    handle = slept.topic("u")
    six.log().delete_topic("u")
    move(six, "0", "3", "4")
    move(six, "3", "4", "5")
    cluster_cleanup.clean_up_cluster(later(six))
    cluster_cleanup.clean_up_cluster(later(six))
    six.away = {"/disk/a"}
    with pytest.raises(UnknownTopic):
        handle.submit(AlterConfig({"retention.ms": "3"}))
    with pytest.raises(UnknownTopic):
        handle.refresh()


# When all journals are lost after a move


def forget_where_they_went(disks, *urls):
    """Let nodes say where the journals were at first, as those do that were away when they moved."""
    for url in urls:
        for key in list(disks.at[url].list("")):
            if key.startswith(f"{layout.JOURNAL_NODES}."):
                disks.at[url].delete(key)


def test_a_cluster_whose_journals_went_on_from_stores_that_do_not_know_it_is_not_rebuilt(six):
    move(six, "3", "4", "5")
    forget_where_they_went(six, *URLS)
    with pytest.raises(InvalidOption, match="at /disk/3, /disk/4, /disk/5 can be read"):
        survey([six.open(url) for url in URLS], fake_environment(), open_node=six.open)


def test_a_cluster_whose_journals_move_is_not_rebuilt_before_they_have_begun_there(six):
    log = six.log()
    log.cluster.entries.propose(log.cluster.number + 1, moving_entry(log))
    with pytest.raises(InvalidOption, match="at /disk/a, /disk/b, /disk/c can be read"):
        survey([six.open(url) for url in (*URLS, *NEW)], fake_environment(), open_node=six.open)
    finish(six)


def moving_entry(log):
    """Return the entry with which the cluster's journal moves to the new stores."""
    present = log.journals.nodes.nodes
    return log.cluster._encode(log.cluster._decide(StartJournalMigration(("0", "3", "4"), present)))


@pytest.mark.parametrize("told", [True, False], ids=["told where they went", "not told"])
def test_what_is_left_on_the_stores_that_the_journals_left_does_not_keep_from_rebuilding(six, told):
    move(six, "3", "4", "5")
    for url in NEW:
        six.at[url] = MemoryStore(url)
    if not told:
        forget_where_they_went(six, *URLS)
    found = survey([six.open(url) for url in URLS], fake_environment(), URLS, open_node=six.open)
    assert [each.folder.topic for each in found.topics] == ["t", "u"]


@pytest.mark.parametrize("left", [(), URLS[1:]], ids=["nothing is left", "there is something where they were before"])
def test_a_rebuilt_cluster_begins_where_no_store_says_it_was(six, left):
    log = six.log()
    move(six, "0", "3", "4", log=log)
    number = log.topic("t").journal.number
    for url in six.at.keys() - left:
        for key in list(six.at[url].list("")):
            if "/entries" in key or "/snapshots/" in key:
                six.at[url].delete(key)
    old = MemoryStore("/disk/5")
    for key in six.at["/disk/5"].list(""):
        old.put(key, six.at["/disk/5"].read(key))
    journal_nodes.tell(log.journals.nodes, old)
    forget_where_they_went(six, *left)
    stores = [six.open(url) for url in (*URLS, "/disk/3", "/disk/4")]
    found = survey(stores, fake_environment(), URLS, open_node=six.open)
    execute.rebuild(found, fake_environment(), journals_are_lost=True)
    six.at["/disk/5"] = old
    for urls in (URLS, (*URLS, "/disk/5")):
        rebuilt = six.log(*urls)
        assert rebuilt.journals.nodes.generation == rebuilt.cluster.state.journals.generation == 3
        assert rebuilt.journals.nodes.urls == URLS
        rebuilt.create_topic(f"new{len(urls)}", 1)
    assert rebuilt.cluster.number > number
    assert move(six, "2", "3", "4").nodes.generation == 4


# Upkeep


def later(disks, *urls):
    log = Log([disks.open(url) for url in urls or NEW], patient(), open_node=disks.open, probe=one_after_another)
    log.open(create=False)
    return log


@pytest.mark.parametrize("tidied_before", [False, True])
def test_the_bytes_of_a_topic_that_was_deleted_go_after_the_move_too(six, tidied_before):
    log = later(six, *URLS)
    [(name, topic_id)] = cluster_cleanup.deleted_topics(log)
    folder = layout.topic_folder(name, topic_id)
    if tidied_before:
        cluster_cleanup.clean_up_cluster(log)
    for store in six.at.values():
        store.create(f"{folder}append/{layout.born_name(0, 'x')}", b"bytes")
    move(six, "0", "3", "4")
    for _ in range(2):
        cluster_cleanup.clean_up_cluster(later(six, *URLS))
    journal = cluster_cleanup.journal_of(later(six, *URLS), name, topic_id)
    assert journal.refresh().deleted
    for store in six.at.values():
        assert set(store.list(folder)) <= set(journal.end_keys())
    assert cluster_cleanup.clean_up_cluster(later(six, *URLS)).deleted_topics == ()


def test_who_tidies_up_a_deleted_topic_as_its_journal_moves_leaves_what_is_new(six, monkeypatch):
    log = later(six, *URLS)
    end = cluster_cleanup.journal_of(log, *cluster_cleanup.deleted_topics(log)[0])
    real = type(end).end_keys

    def end_keys(journal):
        found = real(journal)
        monkeypatch.setattr(type(end), "end_keys", real)
        move(six, "0", "3", "4")
        return found

    monkeypatch.setattr(type(end), "end_keys", end_keys)
    cluster_cleanup.clean_up_cluster(log)
    moved = later(six, "/disk/3")
    assert moved.journals.nodes.generation == 2
    [life] = cluster_cleanup.deleted_topics(moved)
    assert cluster_cleanup.journal_of(moved, *life).refresh().deleted


def test_a_journal_node_that_was_away_is_told_by_the_next_upkeep(six):
    move(six, "0", "3", "4")
    for key in list(six.at["/disk/4"].list(layout.CLUSTER_JOURNAL, "cluster/j")):
        if key.startswith(layout.JOURNAL_NODES):
            six.at["/disk/4"].delete(key)
    assert list(six.log().journals.missing_nodes()) == ["4"]
    cluster_cleanup.clean_up_cluster(six.log())
    assert six.log().journals.missing_nodes() == {}
    assert six.log("/disk/4").journals.nodes.generation == 2


# One journal


class MovingJournal:
    """A list whose journal is on the first three of six stores in generations 1 and 3, and on the others in 2."""

    def __init__(self):
        self.stores = [MemoryStore(f"store-{number}") for number in range(6)]
        for number, store in enumerate(self.stores):
            mark(store, number)

    def place(self, generation):
        numbers = (3, 4, 5) if generation == 2 else (0, 1, 2)
        members = [Member(self.stores[number], str(number), f"incarnation-{number}") for number in numbers]
        return SeveralStores(Members(members, ShuffledCalls()), generation)

    def open(self, generation=1):
        return Journal(self.place(generation), FOLDER, MACHINE, fake_environment(), 10_000, follow=self.place)


def test_who_moved_the_journal_writes_the_next_entry_at_the_new_stores():
    journals = MovingJournal()
    journal = journals.open()
    for item in ("book", "vase"):
        journal.submit(AddItems((item,)))
    moved = journal.submit(MoveJournal(2)).number
    assert journal.entries.leads(moved + 1)
    assert journal.submit(AddItems(("clock",))).number == moved + 1
    assert journal.place.generation == 2
    assert not any(layout.number(moved + 1) in key for key in journals.stores[0].list(""))
    assert journals.open(2).refresh() == journals.open().refresh() == journal.state


def test_a_journal_begins_nowhere_else_before_its_last_entry_here_is_durable(monkeypatch):
    """Who only read the entry saw perhaps what a loss of power takes away, and another is decided in its place."""
    journals = MovingJournal()
    journal, reader = journals.open(), journals.open()
    journal.submit(AddItems(("book",)))
    journal.submit(MoveJournal(2))

    def confirm(number):
        raise StoreUnavailable("store-0", "", f"entry {number} is not flushed")

    monkeypatch.setattr(reader.entries, "confirm", confirm)
    with pytest.raises(StoreUnavailable, match="entry 2 is not flushed"):
        reader.refresh()
    assert [list(store.list("")) for store in journals.stores[3:]] == [[layout.KEY]] * 3
    monkeypatch.undo()
    assert reader.refresh().items == ("book",)
    assert reader.place.generation == 2


def test_what_several_may_have_proposed_gives_nobody_the_lead():
    journals = MovingJournal()
    for shared, proposed in ((True, b"same"), (False, b"own")):
        slots = journals.place(1).entries(f"{shared}/", fake_environment(), 10_000)
        assert slots.propose(1, proposed, shared=shared) == proposed
        assert slots.leads(2) is not shared


def test_who_slept_and_finds_the_beginning_of_the_move_after_next_finishes_that():
    """A snapshot of the third generation lies on stores of the first, before the journal has begun there."""
    journals = MovingJournal()
    slept, journal = journals.open(), journals.open()
    slept.submit(AddItems(("book",)))
    journal.submit(AddItems(("vase",)))
    journal.submit(MoveJournal(2))
    journal.refresh()
    journal.clear(journals.place(1))
    journal.submit(AddItems(("clock",)))
    moved = journal.submit(MoveJournal(3)).number
    journal._create_snapshot(journals.place(3).objects(FOLDER, fake_environment(), 10_000))
    assert slept.refresh().items == ("book", "vase", "clock")
    assert slept.place.generation == 3
    assert slept.entries.read(moved) is not None
    assert slept.submit(AddItems(("lamp",))).number == moved + 1
    assert journal.refresh() == slept.state


# Many processes


@pytest.mark.slow
def test_ten_processes_write_and_trim_while_the_journal_moves_and_moves_on(tmp_path):
    begin([str(tmp_path / str(number)) for number in range(5)])
    generations = [[str(tmp_path / name) for name in names] for names in ("012", "034", "341")]
    words = ";".join(",".join(each) for each in generations)
    command = [sys.executable, "-m", "tests.coordinator.move_worker", words]
    workers = [subprocess.Popen([*command, f"w{i}", str(EACH)], cwd=ROOT) for i in range(PROCESSES)]
    watching = open_moving(generations)
    for generation, count in ((2, 50), (3, 150)):
        while len(watching.refresh().items) < count:
            time.sleep(0.02)
        assert subprocess.run([*command, str(generation)], cwd=ROOT, check=False).returncode == 0
    assert [worker.wait() for worker in workers] == [0] * PROCESSES
    for journal in (watching, open_moving(generations)):
        items = journal.refresh().items
        assert journal.place.generation == 3
        assert len(items) == PROCESSES * EACH
        for i in range(PROCESSES):
            assert [each for each in items if each.startswith(f"w{i}-")] == [f"w{i}-{n}" for n in range(EACH)]


# The lists


def test_a_store_tells_the_newest_list_and_is_told_each_once():
    store = MemoryStore("/disk/a")
    first = journal_nodes.JournalNodes("c", ())
    lists = [first, *(msgspec.structs.replace(first, generation=generation) for generation in (2, 9, 10, 11))]
    for each in lists:
        assert journal_nodes.tell(each, store)
        assert not journal_nodes.tell(each, store)
        assert journal_nodes.read(store) == each
    assert not journal_nodes.tell(lists[1], store)
    assert b"generation" not in store.read(layout.JOURNAL_NODES)
    new = MemoryStore("/disk/b")
    assert journal_nodes.tell(lists[-1], new)
    assert list(new.list("")) == [layout.JOURNAL_NODES]
    assert journal_nodes.newest([store, new]) == lists[-1]
    assert journal_nodes.find([new, store]) == lists[-1]
