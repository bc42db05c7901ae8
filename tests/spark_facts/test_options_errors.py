"""What a user types and what a user is told: options on their way in, messages on their way out.

An exception's message always comes at the end of a line, after its class's name. By default a traceback is
before it; with SPARK_HIDE_TRACEBACK, set in the process that raises, it is in the first line.
"""

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException, PythonException, StreamingQueryException

from tests.spark_facts.bench import SPARK, Bench, MakeBench, Run

WITH_LOCALS = "spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled"
HIDDEN: dict[str, Any] = {"hidesTraceback": "true"}


def told(calling: str) -> str:
    """What ends the first line of a hidden traceback."""
    return f"RuntimeError: the probe fails in {calling}"


def first_line(error: BaseException) -> str:
    """The first line a user reads."""
    return str(error).splitlines()[0]


def failure_of_drain(bench: Bench, failing: str, **options: str) -> StreamingQueryException:
    """How a stream from the probe fails."""
    with pytest.raises(StreamingQueryException) as raised:
        bench.drain(failsIn=failing, **options)
    assert raised.value.getCondition() == "STREAM_FAILED"
    return raised.value


def test_option_keys_arrive_in_lower_case_and_values_as_they_are(bench: Bench) -> None:
    bench.batch(topicConfig='{"Retention.Ms": "1"}').load()
    [call] = bench.calls("__init__")
    assert call["options"] == {"journal": str(bench.folder), "topicconfig": '{"Retention.Ms": "1"}'}


@pytest.mark.skipif(SPARK < (4, 3), reason="new in Spark 4.3")
def test_an_option_of_none_does_not_arrive(bench: Bench) -> None:
    bench.batch().option("topic", None).load()
    bench.stream().options(topic=None).load()
    bench.spark.range(1).write.format("probe").options(**bench.options(), topic=None).mode("append").save()
    assert [call["options"] for call in bench.calls("__init__")] == [{"journal": str(bench.folder)}] * 3


@pytest.mark.skipif(SPARK >= (4, 3), reason="Spark 4.3 leaves the option out")
def test_an_option_of_none_is_an_internal_error_of_spark_before_any_call(bench: Bench) -> None:
    with pytest.raises(Py4JJavaError, match="INTERNAL_ERROR"):
        bench.batch().option("topic", None).load()
    assert bench.calls() == []


def test_the_path_of_load_is_an_option(bench: Bench) -> None:
    bench.batch().load("some/where")
    bench.stream().load("else/where")
    assert [call["options"]["path"] for call in bench.calls("__init__")] == ["some/where", "else/where"]


def test_the_path_of_save_is_an_option(bench: Bench) -> None:
    write = bench.spark.range(1).write.format("probe").options(**bench.options())
    write.mode("append").save("some/where")
    assert [call["options"]["path"] for call in bench.calls("__init__")] == ["some/where"]


def test_the_path_of_start_is_an_option_of_the_sink(three_batches: Run) -> None:
    paths = [call["options"].get("path") for call in three_batches.named("__init__")]
    assert paths[0] is None
    assert set(paths[1:]) == {"some/where"}


@pytest.mark.parametrize("failing", ["__init__", "schema"])
def test_a_failing_load_shows_the_message_alone(bench: Bench, failing: str) -> None:
    with pytest.raises(AnalysisException) as raised:
        bench.batch(failsIn=failing, **HIDDEN).load()
    assert raised.value.getCondition() == "PYTHON_DATA_SOURCE_ERROR"
    assert first_line(raised.value) == (
        f"[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: {told(failing)}"
    )


@pytest.mark.parametrize("failing", ["reader", "partitions"])
def test_a_failing_plan_of_a_batch_shows_the_message_alone(bench: Bench, failing: str) -> None:
    with pytest.raises(AnalysisException) as raised:
        bench.batch(failsIn=failing, **HIDDEN).load().collect()
    assert raised.value.getCondition() == "PYTHON_DATA_SOURCE_ERROR"
    assert first_line(raised.value).endswith(told(failing))


@pytest.mark.parametrize("failing", ["__init__", "writer", "sink commit"])
def test_a_failing_save_shows_the_message_alone(bench: Bench, failing: str) -> None:
    with pytest.raises(AnalysisException) as raised:
        bench.save(bench.spark.range(1), failsIn=failing, **HIDDEN)
    assert raised.value.getCondition() == "PYTHON_DATA_SOURCE_ERROR"
    assert first_line(raised.value).endswith(told(failing))


def test_a_failing_task_of_a_batch_shows_the_message_alone_in_the_second_line(make_bench: MakeBench) -> None:
    bench = make_bench(1)
    for run in (
        lambda: bench.batch(failsIn="read", **HIDDEN).load().collect(),
        lambda: bench.save(bench.spark.range(1), failsIn="write", **HIDDEN),
    ):
        with pytest.raises(PythonException) as raised:
            run()
        failing = "read" if "read" in str(raised.value) else "write"
        assert raised.value.getCondition() == "PYTHON_EXCEPTION"
        assert str(raised.value).splitlines()[:2] == [
            "An exception was thrown from the Python worker:",
            told(failing),
        ]


@pytest.mark.parametrize("failing", ["getDefaultReadLimit", "latestOffset", "partitions"])
def test_a_failing_source_of_a_stream_shows_the_message_alone(make_bench: MakeBench, failing: str) -> None:
    error = failure_of_drain(make_bench(1), failing, **HIDDEN)
    assert "terminated with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR]" in first_line(error)
    assert first_line(error).endswith(told(failing))


@pytest.mark.parametrize("failing", ["streamReader", "streamReader.__init__"])
def test_what_stream_reader_raises_is_buried_under_another_error(make_bench: MakeBench, failing: str) -> None:
    error = str(failure_of_drain(make_bench(1), failing, **HIDDEN))
    assert "UnboundLocalError: cannot access local variable 'reader'" in error
    assert "the probe fails" not in error


def test_a_hidden_traceback_shows_no_local_variables(bench: Bench) -> None:
    with bench.conf(WITH_LOCALS, "true"), pytest.raises(PySparkException) as raised:
        bench.batch(failsIn="schema", **HIDDEN).load()
    assert "self = <" not in str(raised.value)
    assert first_line(raised.value).endswith(told("schema"))


def test_a_process_that_raised_is_not_used_again_so_that_hiding_does_not_spread(bench: Bench) -> None:
    for hiding in ("true", "false"):
        with pytest.raises(PySparkException) as raised:
            bench.batch(failsIn="schema", hidesTraceback=hiding).load()
        assert ("Traceback" in str(raised.value)) == (hiding == "false")
    first, second = bench.calls("schema")
    assert first["pid"] != second["pid"]
