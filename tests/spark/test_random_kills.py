"""One query whose driver is killed again and again, at moments that chance chooses and at some that were aimed at.

PYSPARK_LOG_RANDOM_KILLS=100 python -m pytest tests/spark/test_random_kills.py -s      kills more often
"""

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_log_storage.layout import number, topic_journal
from pyspark_log_storage.stores.addresses import inner_url, open_store
from tests.support.elsewhere import Root
from tests.support.log_reader import open_topic, read_topic
from tests.support.spark.kills import Driver, Query

ROWS = 60_000
PARTITIONS = 4
SEED = 20_260_117
KILLS = int(os.environ.get("PYSPARK_LOG_RANDOM_KILLS", "6"))
AIMED_KILLS = KILLS * 3 // 10
JOURNAL_AHEAD = 2
KILLS_MAX = 40


@dataclass(frozen=True)
class Kill:
    """What a kill left behind: the newest batch of each."""

    moment: str
    planned: int
    sequenced: int
    done: int

    @property
    def journal_ahead(self) -> bool:
        """Whether the topic has a batch that Spark has planned and does not know to be done."""
        return self.planned == self.sequenced > self.done


class Victim:
    """A query and the entries that its batches make, watched from outside."""

    def __init__(self, query: Query) -> None:
        self.query = query
        topic = open_topic(query.path, "out")
        self.store = open_store(inner_url(query.path))
        self.folder = f"{topic_journal('out', topic.topic_id)}entries/"
        self.entries = topic.journal.number
        self.batch_s = 1.0
        self.first_batch_s = 5.0

    def is_next_entry_there(self) -> bool:
        """Whether the entry after the newest known one is in the journal; then it is the newest known one."""
        if not self.store.exists(self.folder + number(self.entries + 1)):
            return False
        self.entries += 1
        return True

    def catch_up(self) -> None:
        """Know all entries that are there now."""
        while self.is_next_entry_there():
            pass

    def wait_for_entry(self, doomed: Driver) -> float:
        """Wait for the next entry, and return how long it took."""
        began = time.monotonic()
        doomed.wait_for(self.is_next_entry_there, "the next batch", poll_s=0.0002)
        return time.monotonic() - began

    def kill(self, doomed: Driver, moment: str) -> Kill:
        """Kill the driver and see what it leaves."""
        doomed.kill()
        self.catch_up()
        query = self.query
        left = Kill(moment, query.newest("offsets"), query.sequenced_batch("out"), query.newest("commits"))
        assert left.planned - 1 <= left.sequenced <= left.planned, left
        assert left.planned - 1 <= left.done <= left.sequenced, left
        return left


def at_random(victim: Victim, doomed: Driver, dice: random.Random) -> Kill:
    """Kill within the first batch of the new driver, or within one of the next ones."""
    batches = dice.choice([0, 1, 2, 3])
    within = dice.random()
    for nth in range(batches):
        took = victim.wait_for_entry(doomed)
        if nth == 0:
            victim.first_batch_s = took
        else:
            victim.batch_s = took
    delay = within * (victim.batch_s if batches else victim.first_batch_s)
    time.sleep(delay)
    return victim.kill(doomed, f"{delay:.3f} s after batch {batches} of this driver")


def at_an_entry(victim: Victim, doomed: Driver, dice: random.Random) -> Kill:
    """Kill as soon as a batch's entry is in the journal."""
    batches = dice.choice([1, 2, 3])
    for _ in range(batches):
        victim.wait_for_entry(doomed)
    return victim.kill(doomed, f"at the entry of batch {batches} of this driver")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_query_whose_driver_is_killed_again_and_again_writes_each_row_once(
    spark: SparkSession, root: Root, tmp_path: Path
) -> None:
    path = str(root / "log")
    rows = spark.range(0, ROWS, numPartitions=1).selectExpr("cast(id % 997 as string) key", "cast(id as string) value")
    for topic, frame in {"in": rows, "out": rows.limit(0)}.items():
        writer = frame.write.format("pyspark_log").mode("append").option("topic", topic)
        writer.option("num.partitions", PARTITIONS).save(path)
    query = Query(
        path,
        str(tmp_path / "checkpoint"),
        str(tmp_path / "trap"),
        {"subscribe": "in", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"},
        {"topic": "out"},
    )
    dice = random.Random(SEED)
    kills = kill_again_and_again(Victim(query), dice, lambda nth: Driver([query], tmp_path / f"driver {nth}.txt"))
    ahead = [kill for kill in kills if kill.journal_ahead]
    print(f"{len(kills)} kills, of which {len(ahead)} left the journal ahead of Spark's commit log; seed {SEED}")
    for kill in kills:
        print(kill)
    assert len(kills) >= KILLS
    assert len(ahead) >= JOURNAL_AHEAD
    assert query.newest("commits") >= len(kills) // 2, "the drivers were killed before they wrote anything"
    replace(query, source={**query.source, "maxOffsetsPerTrigger": "20000"}).run(spark)
    query.check_copied("in", "out")
    assert sorted(read_topic(path, "out").numbers()) == list(range(ROWS))


def kill_again_and_again(victim: Victim, dice: random.Random, start: Callable[[int], Driver]) -> list[Kill]:
    """Kill one driver after the other; while one works, the next gets ready."""
    moments = [at_random] * (KILLS - AIMED_KILLS) + [at_an_entry] * AIMED_KILLS
    dice.shuffle(moments)
    kills: list[Kill] = []
    waiting = start(0)
    try:
        while moments:
            doomed, waiting = waiting, start(len(kills) + 1)
            try:
                doomed.begin()
                kills.append(moments.pop()(victim, doomed, dice))
            finally:
                doomed.kill()
            enough = sum(kill.journal_ahead for kill in kills) >= JOURNAL_AHEAD
            if not moments and not enough and len(kills) < KILLS_MAX:
                moments = [at_an_entry]
    finally:
        waiting.kill()
    return kills
