"""Clients of a cluster whose journals are on three nodes, one of which is lost."""

import threading

from pyspark_log import Consumer, Producer
from tests.support.command_line import CommandLine
from tests.support.lost_folders import lose_folder

GUARD = 60


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
