"""Kills of whoever writes, maintains or publishes: the Delta table read without the product is right after each.

The suite makes some hundred kills. `PYSPARK_LOG_KILLS=1000` makes so many on each kind of cluster:

    PYSPARK_LOG_KILLS=1000 pytest -rP --timeout=0 tests/coordinator/test_table_kills.py
"""

import os

import pytest

from pyspark_log_storage.delta import delta_log
from tests.support.coordinator.fault_story import ON_THE_ROOT, told
from tests.support.coordinator.table_story import TableStory

WANTED = int(os.environ.get("PYSPARK_LOG_KILLS", "0"))
SINGLE = ("/root",)
CHECKPOINT_EVERY = 3


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(delta_log, "CHECKPOINT_EVERY", CHECKPOINT_EVERY)
    with told():
        yield


def killed(story, kills):
    """Go on until so many processes were killed, looking at the tables after each; return how many rows were seen."""
    story.begin()
    rows = 0
    while story.kills < kills:
        if story.go_on():
            rows += sum(len(each) for node in story.look().values() for each in node.values())
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(("urls", "kills"), [(SINGLE, 60), (ON_THE_ROOT, 70)], ids=["one node", "three nodes"])
def test_after_each_kill_the_table_has_each_row_once_and_no_gap(urls, kills, tmp_path):
    story = TableStory(urls, tmp_path, seed=7)
    rows = killed(story, WANTED or kills)
    assert story.look_after_cleanup() > 0
    assert min(story.versions.values()) > CHECKPOINT_EVERY
    print(f"{story.kills} kills, {rows} rows read after them, versions {story.versions}")
