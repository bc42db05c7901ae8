"""The plan of a backfill is stored once, and holds for one frame, one topic and one set of settings."""

import msgspec
import pytest

from pyspark_log.history.backfill import BackfillPlan, create_plan, read_plan
from pyspark_log_storage.errors import InvalidInput
from tests.support.memory_store import MemoryStore

COLUMNS = "struct<value:string,time:timestamp>"
PLAN = BackfillPlan("b", "t", "1", ("time",), 100, COLUMNS, bounds=("100", "200"))


def test_a_plan_comes_back_also_for_a_process_that_planned_too_late():
    store = MemoryStore()
    assert read_plan(store) is None
    assert create_plan(store, PLAN) == PLAN
    assert read_plan(store) == PLAN
    assert create_plan(store, msgspec.structs.replace(PLAN, bounds=("99", "200"))) == PLAN


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("backfill_id", "c"),
        ("topic", "u"),
        ("topic_id", "2"),
        ("order_by", ("time", "value")),
        ("rows_per_range", 50),
        ("columns", "struct<value:string>"),
        ("key_column", "value"),
    ],
)
def test_a_backfill_continues_only_with_the_settings_with_which_it_began(name, value):
    PLAN.check(msgspec.structs.replace(PLAN, bounds=()), "/checkpoint")
    with pytest.raises(InvalidInput, match=f"the backfill in /checkpoint began with {name} "):
        PLAN.check(msgspec.structs.replace(PLAN, **{name: value}), "/checkpoint")
