"""What an operation costs hardly depends on the partitions that it does not touch; counted in bytecodes, not seconds.

A loop that looks at a field or two of each partition executes 10 to 20 bytecodes for each: with 10,000 partitions some
3 ms. One that applies a rule to each executes hundreds.
"""

import json
from functools import partial

import pytest

from pyspark_log import Consumer
from pyspark_log.options import parse_source
from pyspark_log.reading import source_offset
from pyspark_log.reading.stream_planner import StreamPlanner
from pyspark_log_coordinator.commit.inline_maintenance import plan_inline
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.maintenance.roll_task import roll_task_of, run_roll
from pyspark_log_coordinator.replication.file_holders import FilesHeld, HoldFiles, evolve
from pyspark_log_coordinator.segments.roll_plan import RollJob
from pyspark_log_coordinator.segments.swap import MaintainSegments
from tests.support.bytecodes import executed
from tests.support.coordinator.several_nodes import Stores
from tests.support.coordinator.topics import after, commit, file, incarnation, started
from tests.support.plain_log import PlainLog

SMALL, LARGE = 64, 512
UNTOUCHED_MAX = 100
UNTOUCHED_ON_SEVERAL_NODES_MAX = 250
FEW = range(0, SMALL, 8)


class Topics:
    """The topics `small` and `large`, with a row in each partition, and another process that knows them."""

    def __init__(self, path):
        self.path = str(path)
        self.log = PlainLog(path)
        self.reader = PlainLog(path).log
        for name, count in (("small", SMALL), ("large", LARGE)):
            self.log.create(name, count)
            self.log.append(name, {number: [b"first"] for number in range(count)})
            self.reader.topic(name)
            self.write(name)  # what is imported, or found out once, does not count

    def write(self, name):
        self.log.append(name, {number: [b"row"] for number in FEW})

    def costs(self, act):
        """Return how many bytecodes an operation executes on each of the topics."""
        return [executed(partial(act, name)) for name in ("small", "large")]

    def cost_of_untouched(self, act):
        """Return how many bytecodes an operation executes for each partition that it does not touch."""
        small, large = self.costs(act)
        return (large - small) / (LARGE - SMALL)


@pytest.fixture
def topics(tmp_path):
    return Topics(tmp_path)


def test_a_write_costs_what_it_touches(topics):
    assert topics.cost_of_untouched(topics.write) < UNTOUCHED_MAX


def test_reading_the_entry_of_a_batch_costs_what_the_batch_touches(topics):
    topics.costs(topics.reader.topic)
    topics.costs(topics.write)
    assert topics.cost_of_untouched(topics.reader.topic) < UNTOUCHED_MAX


def test_planning_maintenance_costs_what_has_changed(topics):
    def plan(name):
        assert plan_inline(topics.log.log.topic(name)) == ()

    topics.costs(plan)
    topics.costs(topics.write)
    assert topics.cost_of_untouched(plan) < UNTOUCHED_MAX


def test_rolling_a_partition_costs_what_it_rolls(topics):
    swaps = {"small": [], "large": []}

    def roll(name, partition):
        handle = topics.log.log.topic(name)
        one = handle.journal.state.partitions[partition]
        job = RollJob(partition, one.leader_epoch, 1, (), tuple(one.chunks), one.epoch_starts)
        made = run_roll(topics.log.log.store_at, roll_task_of(handle, job), handle.log.environment)
        swaps[name].append(MaintainSegments((made,)))

    topics.costs(partial(roll, partition=3))
    assert topics.cost_of_untouched(partial(roll, partition=5)) < UNTOUCHED_MAX

    def swap(name):
        assert topics.log.log.topic(name).submit(swaps[name].pop()).events != []

    topics.costs(swap)
    assert topics.cost_of_untouched(swap) < UNTOUCHED_MAX


def test_a_write_to_several_nodes_costs_what_it_touches():
    log = Stores().with_nodes(3, real_environment())
    writer = PlainLog(store=log.store)
    writer.log = log
    for name, count in (("small", SMALL), ("large", LARGE)):
        log.create_topic(name, count, replication_factor=3)
        writer.append(name, {number: [b"first"] for number in range(count)})

    def write(name):
        writer.append(name, {number: [b"row"] for number in FEW})

    for name in ("small", "large"):
        write(name)
    small, large = (executed(partial(write, name)) for name in ("small", "large"))
    assert (large - small) / (LARGE - SMALL) < UNTOUCHED_ON_SEVERAL_NODES_MAX


def test_the_entry_of_a_copied_file_costs_what_the_file_has():
    costs = []
    for count in (SMALL, LARGE):
        state = after(started(count, ("A", "B")), commit(None, file(dict.fromkeys(range(count), 1), on=("A", "B"))))
        for _ in range(2):
            state = after(state, commit(None, file(dict.fromkeys(FEW, 1))))
        state = after(state, HoldFiles("B", incarnation("B"), (1,)))
        copied = FilesHeld("B", (2,), ())
        costs.append(executed(partial(evolve, state, copied)))
        assert {one.log_end_offsets["B"] for one in evolve(state, copied).partitions} == {1, 3}
    assert (costs[1] - costs[0]) / (LARGE - SMALL) < UNTOUCHED_MAX


def test_an_idle_query_costs_the_same_whatever_its_partitions(topics):
    planners, ends = {}, {}
    for name in ("small", "large"):
        planners[name] = planner = StreamPlanner(parse_source({"path": topics.path, "subscribe": name}, streaming=True))
        ends[name] = planner.end(source_offset.INITIAL, unlimited=True)
        assert planner.end(ends[name], unlimited=True) == ends[name]

    def look(name):
        again = json.loads(json.dumps(ends[name]))  # as Spark gives it
        assert planners[name].end(again, unlimited=True) is again

    assert topics.cost_of_untouched(look) < 1
    topics.write("large")
    assert planners["large"].end(ends["large"], unlimited=True) != ends["large"]


def test_a_poll_costs_what_has_new_rows(topics):
    consumers = {}
    for name in ("small", "large"):
        consumer = consumers[name] = Consumer(topics.path)
        consumer.assign(consumer.partitions(name), "latest")
        topics.write(name)
        assert len(consumer.poll(1000)) == len(FEW)
        assert consumer.poll(0) == []  # all other partitions were found to have none
        topics.write(name)

    def poll(name):
        assert len(consumers[name].poll(1000)) == len(FEW)

    assert topics.cost_of_untouched(poll) < 20  # a look for those that have changed
