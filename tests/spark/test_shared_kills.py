"""Queries that share a topic, and one that is rewound, while their drivers are killed (SIGKILL) at random moments.

PYSPARK_LOG_SHARED_KILLS=30 python -m pytest tests/spark/test_shared_kills.py -s      kills more often
"""

import itertools
import os
from collections import Counter

import pytest

from tests.support.direct import read
from tests.support.spark.shared_drivers import NAMES, PARTITIONS, Story, intervals, run_story, taken_up

KILLS = int(os.environ.get("PYSPARK_LOG_SHARED_KILLS", "2"))
SEED = 20_261_122

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + 60 * KILLS)]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """What has happened when all rows are read."""
    found = run_story(tmp_path_factory.mktemp("shared"), KILLS, SEED + KILLS)
    print(f"{found.written} rows, {len(found.kills)} kills, {len(found.rewinds)} rewinds; seed {SEED + KILLS}")
    print(*found.kills, sep="\n")
    assert len(found.kills) == KILLS
    return found


def numbers(story: Story, topic: str) -> Counter[int]:
    return Counter(int(row["value"]) for row in read(story.path, subscribe=topic))


def test_each_row_is_processed_once_by_three_queries_that_share_a_topic_and_are_killed(story: Story) -> None:
    assert numbers(story, "out") == dict.fromkeys(range(story.written), 1)


def test_the_batches_of_queries_that_share_a_topic_neither_overlap_nor_leave_a_row_out(story: Story) -> None:
    found = sorted(each for name in NAMES for each in intervals(story.shared[name], name) if each.begin < each.end)
    assert {each.query for each in found} == set(NAMES)
    for partition, of_it in itertools.groupby(found, lambda each: each.partition):
        end = 0
        for each in of_it:
            assert each.begin == end, each
            end = each.end
        assert end == story.written_offsets[partition]


def test_a_partition_is_handed_over_at_the_offset_that_its_former_owner_has_committed(story: Story) -> None:
    handed_over = 0
    for partition in range(PARTITIONS):
        commits = [each for each in story.commits if each.partition == partition]
        for before, after in itertools.pairwise(commits):
            assert before.offset <= after.offset
            if before.query != after.query:
                assert before.offset == after.offset, (before, after)
                handed_over += 1
    print(f"{len(story.commits)} commits, {handed_over} partitions handed over")
    assert handed_over >= PARTITIONS - PARTITIONS // len(NAMES)


def test_a_running_query_reads_rewound_rows_again_exactly_as_its_offset_log_says(story: Story) -> None:
    read_by = Counter(
        offset * PARTITIONS + each.partition
        for each in intervals(story.alone, "alone")
        for offset in range(each.begin, each.end)
    )
    assert numbers(story, "again") == read_by
    assert set(read_by) == set(range(story.written))
    repeated = [offset * PARTITIONS + p for rewind in story.rewinds for p, offset in rewind.items()]
    assert repeated
    assert all(read_by[number] > 1 for number in repeated)


def test_a_running_query_takes_up_each_rewind_once_in_one_batch(story: Story) -> None:
    alone = story.alone
    assert taken_up(alone) == len(story.rewinds)
    numbers = [alone.taken_rewinds(batch) for batch in range(alone.newest("offsets") + 1)]
    assert numbers == sorted(numbers)
    for nth, rewind in enumerate(story.rewinds, 1):
        begin = alone.offset(numbers.index(nth))["in"]["begin"]
        assert {int(p): offset for p, (offset, _) in begin.items()} == rewind
    moved = [batch for batch in range(1, len(numbers)) if alone.offset(batch)["in"].get("begin")]
    assert moved == [numbers.index(nth) for nth in range(1, len(story.rewinds) + 1)]
