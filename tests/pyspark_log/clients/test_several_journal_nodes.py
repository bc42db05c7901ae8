"""Clients of a cluster whose journals are on three nodes, one of which is lost."""

import threading

from pyspark_log import Consumer, Producer
from pyspark_log.opening import own_log
from pyspark_log_coordinator.membership import group_member
from tests.support.command_line import CommandLine
from tests.support.lost_folders import lose_folder
from tests.support.pyspark_log.clients.group_programs import COOPERATIVE, Programs

GUARD = 60


class Opened:
    """A log that exists, at some address."""

    def __init__(self, path):
        self.path = path
        self.log = own_log(path)
        self.log.open(create=False)


def test_several_threads_write_and_one_reads_while_a_node_is_lost(root):
    disks = [root / name for name in "abc"]
    CommandLine(disks[0]).out("cluster", "create", "--journal-nodes", ",".join(map(str, disks)))
    path = ",".join(map(str, disks))
    with Producer(path, linger_ms=0) as producer, Consumer(path, auto_offset_reset="earliest") as consumer:
        producer.send("t", b"first").result(GUARD)

        def send():
            for _ in range(20):
                producer.send("t", b"row").result(GUARD)

        threads = [threading.Thread(target=send) for _ in range(3)]
        for thread in threads:
            thread.start()
        consumer.assign(consumer.partitions("t"))
        found = []
        while len(found) < 61:
            found += consumer.poll(GUARD * 1000)
            if len(found) > 10:
                lose_folder(disks[2])
        for thread in threads:
            thread.join(GUARD)
    assert [row.offset for row in found] == list(range(61))


def test_a_member_reads_on_what_it_keeps_after_the_journals_have_migrated(root, monkeypatch):
    monkeypatch.setattr(group_member, "NEWS_SECONDS", 0)
    disks = [root / name for name in "abcdef"]
    line = CommandLine(disks[0])
    line.out("cluster", "create", "--journal-nodes", ",".join(map(str, disks[:3])))
    for disk in disks[3:]:
        disk.mkdir()
        line.out("nodes", "add", disk)
    line.out("topics", "create", "t", "--partitions", "6")
    log = Opened(",".join(map(str, disks[:3])))
    programs = Programs(log)
    stays = programs.start(partition_assignment_strategy=COOPERATIVE)
    programs.settle()
    line.out("cluster", "migrate-journals", "--to", "3,4,5")
    programs.settle()
    comes = programs.start(partition_assignment_strategy=COOPERATIVE)
    programs.settle()
    programs.stop(comes)
    programs.settle()
    with Producer(log.path) as producer:
        for number in range(6):
            producer.send("t", b"row", partition=number)
    programs.poll(lambda: len(programs.rows[stays]) == 6)
    programs.close()
