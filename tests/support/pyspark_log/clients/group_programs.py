"""Programs that are members of a group, in one process: each acts when the test lets it poll."""

from time import monotonic

from pyspark_log import Consumer, ConsumerRebalanceListener, TopicPartition
from pyspark_log_coordinator.group.joining import ExpireMember
from pyspark_log_coordinator.group.machine import AlterGroupConfig
from pyspark_log_storage.errors import RebalanceInProgress

GUARD = 60
T = [TopicPartition("t", number) for number in range(6)]
EAGER, COOPERATIVE = "range", "cooperative-sticky"
QUICK = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1"}


class Notes(ConsumerRebalanceListener):
    """What a listener was told."""

    def __init__(self):
        self.all = []

    def on_partitions_assigned(self, assigned):
        self.all.append(("assigned", sorted(each.partition for each in assigned)))

    def on_partitions_revoked(self, revoked):
        self.all.append(("revoked", sorted(each.partition for each in revoked)))

    def on_partitions_lost(self, lost):
        self.all.append(("lost", sorted(each.partition for each in lost)))

    def of(self, what):
        return [each for word, each in self.all if word == what]


class Committing(ConsumerRebalanceListener):
    """Commits before it gives partitions up."""

    def __init__(self):
        self.consumer = None

    def on_partitions_revoked(self, revoked):
        self.consumer.commit()


class Programs:
    """The members of the group `g` of one log."""

    def __init__(self, log, **options):
        self.log = log
        self.options = {"group_id": "g", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 100} | options
        self.configure(**QUICK)
        self.running = []
        self.rows = {}
        """The rows that each program has polled, as (partition, offset)."""

    def configure(self, **settings):
        self.log.log.group("g", create=True).submit(AlterGroupConfig(settings))

    def start(self, *topics, listener=None, **options):
        consumer = Consumer(self.log.path, **self.options | options)
        if isinstance(listener, Committing):
            listener.consumer = consumer
        consumer.subscribe(topics or ["t"], listener=listener)
        self.running.append(consumer)
        self.rows[consumer] = []
        return consumer

    def stop(self, consumer):
        self.running.remove(consumer)
        consumer.close()

    def close(self):
        for each in self.running:
            each.close()

    @property
    def state(self):
        return self.log.log.group("g", create=True).journal.state

    def poll(self, until, commit=False):
        """Let the programs poll in turn until something holds. Those that commit do so after each poll with rows.

        A commit that a rebalance refuses is made again after the next poll. A member that lost its partitions by then
        leaves the rows to their new reader, so who needs each row committed waits for that, not for the rows.
        """
        deadline = monotonic() + GUARD
        refused: set[Consumer] = set()
        while not until():
            assert monotonic() < deadline, self.state
            for each in list(self.running):
                found = [(row.partition, row.offset) for row in each.poll(2)]
                self.rows[each] += found
                if commit and (found or each in refused):
                    refused.discard(each)
                    try:
                        each.commit()
                    except RebalanceInProgress:
                        refused.add(each)

    def settle(self, partitions=6):
        """Let them poll until each partition has its reader, and all programs have as many as each other."""
        self.poll(lambda: self._is_settled(partitions))

    def _is_settled(self, partitions):
        shares = [len(each.assignment()) for each in self.running]
        generations = {each.group_metadata().generation_id for each in self.running}
        return sum(shares) == partitions and max(shares) - min(shares) <= 1 and generations == {self.state.generation}

    def all_rows(self):
        return [row for rows in self.rows.values() for row in rows]


def fill(log, rows, topic="t", partitions=range(6)):
    """Append as many rows to each partition."""
    log.append(topic, {number: [b"%d" % row for row in range(rows)] for number in partitions})


def committed(programs, partition):
    found = programs.state.committed(programs.log.log.topic("t").topic_id, partition)
    return None if found is None else found.offset


def expire(programs, consumer):
    member_id = consumer.group_metadata().member_id
    return ExpireMember(member_id, programs.state.members[member_id].acted)
