"""How Spark calls a source: in which order, with which offsets, and what it does with the answers."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from tests.spark_facts.bench import Bench, Call, MakeBench, Run
from tests.spark_facts.probe_source import SENTINEL, offset_at

PREPARATION = ["prepareForTriggerAvailableNow", "getDefaultReadLimit"]
SOURCE_CALLS = [
    *PREPARATION,
    "initialOffset",
    "latestOffset",
    "reportLatestOffset",
    "partitions",
    "source commit",
]


def ranges(run: Run, call: str, end: str) -> list[tuple[Call, Call]]:
    """The (start, end) of each call."""
    return [(made["start"], made[end]) for made in run.named(call)]


@pytest.fixture(scope="module")
def without_mixin(make_bench: MakeBench) -> Bench:
    """25 rows, from a probe that has a read limit but is not ready for Trigger.AvailableNow."""
    bench = make_bench(25)
    bench.drain(kind="limited", perTrigger=10)
    return bench


def test_available_now_prepares_then_asks_for_limit_initial_latest_and_reported_offset(
    three_batches: Run,
) -> None:
    assert three_batches.names(*SOURCE_CALLS)[:5] == SOURCE_CALLS[:5]


def test_available_now_takes_25_rows_by_10_and_ends_when_latest_offset_returns_its_start(
    three_batches: Run,
) -> None:
    assert ranges(three_batches, "latestOffset", "returned") == [
        (SENTINEL, offset_at(10)),
        (offset_at(10), offset_at(20)),
        (offset_at(20), offset_at(25)),
        (offset_at(25), offset_at(25)),
    ]
    assert [call["rows"] for call in three_batches.named("write (0, 0)")] == [[10], [10], [5]]


def test_the_default_read_limit_is_echoed_to_each_latest_offset(three_batches: Run) -> None:
    assert {call["limit"] for call in three_batches.named("latestOffset")} == {"ReadMaxRows(max_rows=10)"}


def test_available_now_without_the_mixin_takes_all_rows_at_once(without_mixin: Bench) -> None:
    [call] = without_mixin.calls("latestOffset")
    assert (call["limit"], call["returned"]) == ("ReadAllAvailable()", offset_at(25))
    assert "prepareForTriggerAvailableNow" not in without_mixin.names()


def test_trigger_once_asks_with_read_all_available(make_bench: MakeBench) -> None:
    bench = make_bench(25)
    bench.run(bench.sink(bench.stream(perTrigger=10).load()).trigger(once=True))
    [call] = bench.calls("latestOffset")
    assert (call["limit"], call["returned"]) == ("ReadAllAvailable()", offset_at(25))


def test_the_first_batch_asks_for_the_initial_offset_again_and_plans_from_it(three_batches: Run) -> None:
    assert three_batches.names(*SOURCE_CALLS)[3:7] == [
        "latestOffset",
        "reportLatestOffset",
        "initialOffset",
        "partitions",
    ]
    assert ranges(three_batches, "partitions", "end") == [
        (SENTINEL, offset_at(10)),
        (offset_at(10), offset_at(20)),
        (offset_at(20), offset_at(25)),
    ]


def test_the_offset_log_holds_exactly_json_dumps_of_the_offset(three_batches: Run) -> None:
    lines = [three_batches.bench.wal(batch) for batch in range(3)]
    assert lines == [json.dumps(offset_at(row)) for row in (10, 20, 25)]


def test_an_equal_offset_with_another_json_text_makes_an_empty_batch(make_bench: MakeBench) -> None:
    bench = make_bench(5)
    bench.drain(reorders="true")
    assert [bench.wal(0), bench.wal(1)] == [
        '{"row": 5, "log": "\\u00e9t\\u00e9"}',
        '{"log": "\\u00e9t\\u00e9", "row": 5}',
    ]
    assert [call["split"] for call in bench.calls("read")] == ["Rows(start=0, end=5)"]


def test_batch_0_runs_even_when_it_is_empty_and_its_end_is_logged(idle_then_busy: Run) -> None:
    assert ranges(idle_then_busy, "partitions", "end")[0] == (SENTINEL, offset_at(0))
    assert json.loads(idle_then_busy.bench.wal(0)) == offset_at(0)


def test_an_idle_latest_offset_that_returns_its_start_makes_no_batch(idle_then_busy: Run) -> None:
    idle = [call for call in idle_then_busy.named("latestOffset") if call["start"] == call["returned"] == offset_at(0)]
    assert len(idle) > 1
    assert ranges(idle_then_busy, "partitions", "end")[1:] == [(offset_at(0), offset_at(5))]


def test_source_commit_of_a_batch_comes_after_the_offset_log_has_the_next(three_batches: Run) -> None:
    commits = [(call["end"], call["offsets"]) for call in three_batches.named("source commit")]
    assert commits[:2] == [(offset_at(10), [0, 1]), (offset_at(20), [0, 1, 2])]


def test_source_commit_of_the_last_batch_never_comes(three_batches: Run) -> None:
    assert offset_at(25) not in [call["end"] for call in three_batches.named("source commit")]


def test_latest_offset_starts_where_a_committed_batch_ends(three_batches: Run, replay_of_batch_2: Run) -> None:
    for run, asked in (
        (three_batches, [[], [0], [0, 1], [0, 1, 2]]),
        (replay_of_batch_2, [[0, 1, 2], [0, 1, 2, 3]]),
    ):
        assert [call["commits"] for call in run.named("latestOffset")] == asked
    assert replay_of_batch_2.named("latestOffset")[-1]["start"] == offset_at(30)


def test_a_restart_with_batch_0_uncommitted_asks_for_the_initial_offset_and_plans_it_to_the_log(
    replay_of_batch_0: Run,
) -> None:
    calls = replay_of_batch_0.names(*SOURCE_CALLS)
    assert calls[: calls.index("latestOffset")] == [*PREPARATION, "initialOffset", "partitions"]
    assert ranges(replay_of_batch_0, "partitions", "end") == [(SENTINEL, offset_at(5))]


def test_a_restart_with_batch_n_uncommitted_plans_it_from_the_log_alone(replay_of_batch_2: Run) -> None:
    calls = replay_of_batch_2.names(*SOURCE_CALLS)
    assert calls[: calls.index("latestOffset")] == [*PREPARATION, "partitions"]
    assert ranges(replay_of_batch_2, "partitions", "end")[0] == (offset_at(20), offset_at(25))
    assert "initialOffset" not in calls


def test_a_restart_does_not_commit_the_source_batch_before_the_replayed_one(replay_of_batch_2: Run) -> None:
    assert [call["end"] for call in replay_of_batch_2.named("source commit")] == [offset_at(25)]


def test_the_reader_that_reads_is_made_once_for_a_query_run(three_batches: Run) -> None:
    reading = {call["made"] for call in three_batches.named("stream read")}
    made = [call["made"] for call in three_batches.named("streamReader.__init__")]
    assert len(three_batches.named("stream read")) == 3
    assert len(made) == 2
    assert reading == {made[1]}


def test_report_latest_offset_appears_in_the_progress_as_it_is(three_batches: Run) -> None:
    assert three_batches.query is not None
    progress = [json.loads(progress.json) for progress in three_batches.query.recentProgress]
    assert [one["sources"][0]["latestOffset"] for one in progress] == [{"newest": 25}] * 3


def test_report_latest_offset_runs_after_each_latest_offset(idle_then_busy: Run) -> None:
    calls = idle_then_busy.names("latestOffset", "reportLatestOffset")
    pairs = zip(calls[::2], calls[1::2], strict=False)
    assert set(pairs) == {("latestOffset", "reportLatestOffset")}


def test_an_empty_plan_reads_nothing_in_a_stream(idle_then_busy: Run) -> None:
    assert [call["split"] for call in idle_then_busy.named("read")] == ["Rows(start=0, end=5)"]


def test_an_empty_plan_reads_one_partition_without_value_in_a_batch(bench: Bench) -> None:
    assert bench.batch().load().collect() == []
    assert [call["split"] for call in bench.calls("read")] == ["InputPartition(value=None)"]


@pytest.mark.parametrize("given", ["id", "text"])
def test_a_user_schema_reaches_the_reader_and_schema_is_not_called(make_bench: MakeBench, given: str) -> None:
    bench = make_bench(2)
    types = {"id": "bigint", "text": "string"}
    rows = bench.batch().schema(f"{given} {types[given]}").load()
    assert [row.asDict() for row in rows.collect()] == [
        {"id": n} if given == "id" else {"text": f"row {n}"} for n in (0, 1)
    ]
    assert [call["schema"] for call in bench.calls("reader")] == [f"struct<{given}:{types[given]}>"]
    assert "schema" not in bench.names()


def test_columns_are_not_pruned(make_bench: MakeBench) -> None:
    bench = make_bench(2)
    assert len(bench.batch().load().select("id").collect()) == 2
    assert [call["schema"] for call in bench.calls("reader")] == ["struct<id:bigint,text:string>"]


def test_a_batch_frame_is_planned_once_for_each_load(make_bench: MakeBench) -> None:
    bench = make_bench(2)
    frame = bench.batch().load()
    frame.createOrReplaceTempView("planned_once")
    assert (frame.count(), bench.spark.table("planned_once").count()) == (2, 2)
    bench.set_rows(5)
    assert (frame.count(), frame.select("id").count(), bench.spark.table("planned_once").count()) == (2, 2, 2)
    assert len(bench.calls("partitions")) == 1
    assert bench.batch().load().count() == 5


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.collect())


def test_filters_that_are_pushed_for_one_query_take_rows_from_others_of_the_same_frame(make_bench: MakeBench) -> None:
    """The reason why filters are not pushed down to the log: the rows of a frame that Spark returns would be wrong."""
    bench = make_bench(3)
    with bench.conf(PUSHDOWN, "true"):
        frame = bench.batch(kind="pushing").load()
        assert ids(frame.filter("id = 0")) == [0]
        assert ids(frame) == [0]  # it has three rows
        assert ids(frame.filter("id = 1").union(frame.filter("id = 2"))) == [2]  # it has two rows
        assert ids(bench.batch(kind="pushing").load()) == [0, 1, 2]


def frames(bench: Bench, look: Callable[[DataFrame], object], **options: Any) -> list[DataFrame]:
    """Run the reader that reads ahead, look at the frame of each batch, and return the frames."""
    found: list[DataFrame] = []

    def keep(frame: DataFrame, _: int) -> None:
        look(frame)
        found.append(frame)

    writer = bench.stream(kind="ahead", **options).load().writeStream.foreachBatch(keep)
    bench.run(writer.option("checkpointLocation", str(bench.checkpoint)).trigger(availableNow=True))
    return found


def texts(frame: DataFrame) -> list[str]:
    return [row.text for row in frame.collect()]


def test_rows_that_the_planner_has_read_need_no_task_in_python_however_often_they_are_used(
    make_bench: MakeBench,
) -> None:
    bench, found = make_bench(2), []
    frames(bench, lambda frame: found.extend([texts(frame), texts(frame)]))
    assert found == [["ahead 0", "ahead 1"]] * 2
    assert bench.names().count("partitions") == bench.names().count("getCache") == 1
    assert "read" not in bench.names()


def test_a_task_reads_the_rows_that_the_planner_has_read_if_the_jvm_has_no_longer_got_them(
    make_bench: MakeBench,
) -> None:
    [frame] = frames(make_bench(2), lambda _: None)  # the end of a query removes them, and so does its next batch
    assert texts(frame) == ["row 0", "row 1"]


def test_rows_that_the_planner_has_read_are_those_of_one_partition(make_bench: MakeBench) -> None:
    with pytest.raises(StreamingQueryException, match="assertion failed"):
        frames(make_bench(2), texts, splits=2)


def test_a_reader_that_hands_rows_over_only_between_two_calls_is_asked_for_everything(make_bench: MakeBench) -> None:
    bench = make_bench(25)
    frames(bench, lambda _: None, perTrigger=10)
    assert [call for call in bench.names() if call in SOURCE_CALLS][:5] == SOURCE_CALLS[:5]
    assert bench.names().count("reportLatestOffset") == bench.names().count("latestOffset") == 4
