"""A cluster of six nodes whose journals are migrated."""

from pyspark_log_coordinator.audit import verify
from pyspark_log_coordinator.log import journal_move, node_admin
from pyspark_log_coordinator.topic.machine import AlterConfig
from pyspark_log_storage.errors import StoreUnavailable
from tests.support.coordinator.journal_disks import URLS, Disks

NEW = ("/disk/3", "/disk/4", "/disk/5")


class Stores(Disks):
    """Stores that go away at a certain call."""

    def __init__(self):
        super().__init__(*URLS)
        self.calls = {}
        self.away_from = {}

    def open(self, url):
        store = super().open(url)
        for name in ("read", "create", "list", "delete"):
            setattr(store, name, self._counted(url, getattr(store, name)))
        return store

    def _counted(self, url, call):
        def counted(*args, **more):
            self.calls[url] = self.calls.get(url, 0) + 1
            if self.calls[url] >= self.away_from.get(url, 10**9):
                raise StoreUnavailable(url, "", "it is away")
            return call(*args, **more)

        return counted

    def bring_back(self):
        self.away_from.clear()


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
    return journal_move.move(log or disks.log(), ids)


def assert_whole(disks, *urls, value=1):
    """Everything is where it should be, for who is given any of the addresses."""
    for given in (urls, *((url,) for url in urls)):
        log = disks.log(*given)
        assert sorted(log.topics()) == ["t", "u"]
        assert written(log, "t") == value
    for report in (verify.verify_cluster(log), verify.verify(log.topic("t")), verify.verify(log.topic("u"))):
        assert report.sound, report


# Cut short, or without a store


def finish(disks, value=1):
    """Do it again, from any of the addresses, and hold that all is there."""
    disks.bring_back()
    log = disks.log()
    assert sorted(log.topics()) == ["t", "u"]
    assert written(log, "t") == value
    assert journal_move.move(log, ("0", "3", "4")).nodes.generation == 2
    assert_whole(disks, *URLS, "/disk/3", "/disk/4", value=value)
