"""How Spark calls a sink: where, with which writer, messages and ids, and what happens on a replay."""

import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame

from tests.spark_facts.bench import Bench, Call, MakeBench, Run
from tests.spark_facts.probe_source import LOCAL_PROPERTIES

QUERY, BATCH, RUN = LOCAL_PROPERTIES


def ids(call: Call) -> tuple[str | None, ...]:
    """The query id, batch id and run id that a task saw."""
    return tuple(call["properties"][name] for name in LOCAL_PROPERTIES)


def pids(run: Run, *names: str) -> set[int]:
    """The processes that these calls ran in."""
    return {call["pid"] for call in run.named(*names)}


def test_a_stream_writer_is_planned_written_and_committed_in_three_different_processes(
    three_batches: Run,
) -> None:
    planners = {call["pid"] for call in three_batches.named("streamWriter") if not call["by_keyword"]}
    writers, committers = pids(three_batches, "write"), pids(three_batches, "sink commit")
    assert not planners & writers
    assert not planners & committers
    assert not writers & committers


def test_planning_calls_stream_writer_by_position_and_committing_by_keyword(three_batches: Run) -> None:
    assert [call["by_keyword"] for call in three_batches.named("streamWriter")] == [
        [],
        ["overwrite", "schema"],
    ] * 3


def test_each_micro_batch_plans_a_writer_that_writes_and_makes_another_that_commits(
    three_batches: Run,
) -> None:
    planned, committing = (
        [call["writer"] for call in three_batches.named("streamWriter")[first::2]] for first in (0, 1)
    )
    assert [call["writer"] for call in three_batches.named("write")] == planned
    assert [call["writer"] for call in three_batches.named("sink commit")] == committing
    assert len({*planned, *committing}) == 6


def test_commit_has_the_batch_id_and_one_message_for_each_task(three_batches: Run) -> None:
    commits = three_batches.named("sink commit")
    assert [call["batch"] for call in commits] == [0, 1, 2]
    assert [[message["rows"] for message in call["messages"]] for call in commits] == [[10], [10], [5]]


def test_a_task_sees_the_ids_of_the_query_its_batch_and_its_run(three_batches: Run) -> None:
    query = three_batches.query
    assert query is not None
    assert [ids(call) for call in three_batches.named("write")] == [
        (query.id, str(batch), query.runId) for batch in range(3)
    ]


def test_a_replayed_batch_has_the_same_query_and_batch_id_and_another_run_id(
    three_batches: Run, replay_of_batch_2: Run
) -> None:
    once, again = ids(three_batches.named("write")[2]), ids(replay_of_batch_2.named("write")[0])
    assert again[:2] == once[:2]
    assert again[2] != once[2]
    assert replay_of_batch_2.named("sink commit")[0]["batch"] == 2


def test_abort_is_called_after_commit_raised_with_the_same_messages(failed_commit: Run) -> None:
    commit, abort = failed_commit.named("sink commit", "sink abort")
    assert (commit["call"], abort["call"]) == ("sink commit", "sink abort")
    assert abort["messages"] == commit["messages"]
    assert abort["batch"] == commit["batch"] == 0
    assert abort["writer"] != commit["writer"]


def test_a_stream_without_partitions_runs_a_dummy_task_that_sends_a_message(idle_then_busy: Run) -> None:
    empty, _ = idle_then_busy.named("sink commit")
    [message] = empty["messages"]
    assert message["rows"] == 0
    assert message["properties"][BATCH] == "0"
    assert idle_then_busy.named("write (0, 0)")[0]["rows"] == []


def test_complete_mode_arrives_as_overwrite(make_bench: MakeBench) -> None:
    bench = make_bench(3)
    with bench.conf("spark.sql.shuffle.partitions", "1"):
        bench.run(bench.sink(bench.stream().load().groupBy("text").count()).outputMode("complete"))
    assert {call["overwrite"] for call in bench.calls("streamWriter")} == {True}


def test_async_progress_tracking_is_refused_by_spark(bench: Bench) -> None:
    stream = bench.sink(bench.stream().load()).trigger(processingTime="0 seconds")
    with pytest.raises(IllegalArgumentException, match="Sink probe does not support async progress tracking"):
        stream.option("asyncProgressTrackingEnabled", "true").start()


def test_a_batch_write_in_foreach_batch_sees_the_ids_of_the_stream(make_bench: MakeBench) -> None:
    bench, seen = make_bench(3), []

    def twice(rows: DataFrame, batch: int) -> None:
        seen.append(batch)
        bench.save(rows)
        bench.save(rows)

    stream = bench.stream().load().writeStream.foreachBatch(twice)
    query = bench.run(stream.option("checkpointLocation", str(bench.checkpoint)).trigger(availableNow=True))
    assert seen == [0]
    assert [ids(call) for call in bench.calls("write")] == [(query.id, "0", query.runId)] * 2


def test_a_plain_batch_write_sees_no_ids(batch_write: Bench) -> None:
    assert {ids(call) for call in batch_write.calls("write")} == {(None, None, None)}


def test_a_batch_pickles_one_writer_for_all_tasks_and_the_commit(batch_write: Bench) -> None:
    writers = {call["writer"] for call in batch_write.calls("write", "sink commit")}
    assert len(batch_write.calls("write")) == 2
    assert len(writers) == 1


def test_a_batch_commits_one_message_for_each_task_in_the_order_of_the_partitions(batch_write: Bench) -> None:
    [commit] = batch_write.calls("sink commit")
    assert [message["rows"] for message in commit["messages"]] == [2, 3]
    assert commit["batch"] is None


def test_a_batch_without_partitions_runs_a_dummy_task_that_sends_a_message(bench: Bench) -> None:
    nothing = bench.spark.createDataFrame(bench.spark.sparkContext.emptyRDD(), "id BIGINT")
    assert nothing.rdd.getNumPartitions() == 0
    bench.save(nothing)
    [commit] = bench.calls("sink commit")
    assert [message["rows"] for message in commit["messages"]] == [0]


def test_an_empty_task_gets_no_arrow_batch(bench: Bench) -> None:
    bench.save(bench.spark.range(0, 10, 1, 2).where("id < 5"))
    assert [call["rows"] for call in bench.calls("write (1, 0)")] == [[]]


@pytest.mark.parametrize(("mode", "overwrite"), [("append", False), ("overwrite", True)])
def test_the_save_mode_arrives_as_overwrite(bench: Bench, mode: str, *, overwrite: bool) -> None:
    bench.save(bench.spark.range(1), mode)
    [call] = bench.calls("writer")
    assert (call["overwrite"], call["by_keyword"]) == (overwrite, [])


@pytest.fixture(scope="module")
def batch_write(make_bench: MakeBench) -> Bench:
    """A DataFrame of two partitions with 2 and 3 rows, written into the probe."""
    bench = make_bench()
    bench.save(bench.spark.range(0, 5, 1, 2))
    return bench
