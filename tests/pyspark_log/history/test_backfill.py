"""A backfill writes each range once, wherever it was killed: its steps, with rows that Python sorts and the sink takes.

With Spark's frames they are in `tests/spark/test_backfill.py`.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql.types import BinaryType, LongType, StructType

import pyspark_log
from pyspark_log.history import backfill
from pyspark_log.history.backfill import BackfillPlan
from pyspark_log.opening import forget_logs
from pyspark_log_storage.errors import InvalidOption, StoreUnavailable, UnknownTopic
from tests.support import plain_frame
from tests.support.direct import read
from tests.support.plain_frame import Frame, Functions
from tests.support.plain_log import PlainLog

ROWS, RANGE = 20, 5
COLUMNS = StructType().add("number", LongType()).add("value", BinaryType())


@pytest.fixture(autouse=True)
def functions_without_spark(monkeypatch):
    monkeypatch.setattr(backfill, "f", Functions())


@pytest.fixture
def log(tmp_path):
    forget_logs()
    made = PlainLog(tmp_path / "log")
    made.create("t")
    return made


def numbered(value=lambda number: b"%d" % number):
    """Rows with the numbers from 0 on, in no order. The first has none, and comes first all the same."""
    numbers = [number * 7 % ROWS for number in range(ROWS)]
    return Frame(COLUMNS, [(number or None, value(number)) for number in numbers])


def start(log, frame, **given):
    settings = {"backfill_id": "b", "checkpoint": f"{log.path}-backfill", "order_by": "number"} | given
    return pyspark_log.backfill(frame, log.path, "t", rows_per_range=RANGE, **settings)


def written(log):
    return [int(row["value"]) for row in read(log.path, subscribe="t")]


@pytest.fixture
def saves(monkeypatch):
    """What happens before and after each write of a range; the list has the numbers of those that were done."""
    save, done, steps = plain_frame._Write.save, [], {}

    def stepwise(self):
        number = int(self._options["txnVersion"])
        steps.pop(("before", number), lambda: None)()
        save(self)
        done.append(number)
        steps.pop(("after", number), lambda: None)()

    monkeypatch.setattr(plain_frame._Write, "save", stepwise)
    return done, steps


def fail():
    raise StoreUnavailable("the store", "key", "it is killed")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(4))
def test_a_backfill_goes_on_with_the_range_after_those_that_are_in_the_topic(log, saves, when, number):
    done, steps = saves
    steps[when, number] = fail
    with pytest.raises(StoreUnavailable):
        start(log, numbered())
    kept = number + (when == "after")
    assert done == [*range(kept)]
    assert start(log, numbered()) == ROWS - RANGE * kept
    assert done == [*range(4)]
    assert written(log) == [*range(ROWS)]
    assert start(log, numbered()) == 0


def test_a_call_begins_after_what_another_process_has_written_since_it_looked(log, saves, monkeypatch):
    done, _ = saves
    check = BackfillPlan.check

    def overtaken(*given):
        check(*given)
        monkeypatch.setattr(BackfillPlan, "check", check)
        with ThreadPoolExecutor(1) as other:  # a thread has a log of its own
            assert other.submit(start, log, numbered()).result() == ROWS

    monkeypatch.setattr(BackfillPlan, "check", overtaken)
    assert start(log, numbered()) == 0
    assert (done, written(log)) == ([*range(4)], [*range(ROWS)])


def test_a_range_of_which_no_row_is_written_counts_none(log):
    log.create("dead")
    log.log.topic("t").alter_config({"max.message.bytes": "1000"})
    large = numbered(lambda number: b"%d" % number + b" " * 2000 * (RANGE <= number < 2 * RANGE))
    assert start(log, large, options={"dead.letter.topic": "dead"}) == ROWS - RANGE
    assert written(log) == [*range(RANGE), *range(2 * RANGE, ROWS)]
    assert len(read(log.path, subscribe="dead")) == RANGE


def test_a_topic_that_is_deleted_meanwhile_is_not_made_again(log, saves):
    _, steps = saves
    steps["after", 0] = lambda: log.delete("t")
    with pytest.raises(UnknownTopic):
        start(log, numbered())
    steps["before", 0] = lambda: log.delete("t")
    log.create("t")
    with pytest.raises(UnknownTopic):
        start(log, numbered(), backfill_id="c", checkpoint=f"{log.path}-other")
    assert "t" not in log.log.topics()


@pytest.mark.parametrize("name", ["txnVersion", "TXNVERSION", "txnappid", "Topic", "PATH"])
def test_an_option_that_follows_from_the_arguments_is_refused_however_it_is_spelt(log, name):
    with pytest.raises(InvalidOption, match=f"option {name} follows from the arguments"):
        start(log, numbered(), options={name: "5"})
