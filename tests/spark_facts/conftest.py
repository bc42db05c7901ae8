"""Spark with the probe registered, and the streams that several tests look at."""

import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.spark_facts import probe_source
from tests.spark_facts.bench import Bench, MakeBench, Run


@pytest.fixture(scope="session")
def make_bench(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> MakeBench:
    """Make a bench with so many rows in a fresh folder."""
    cloudpickle.register_pickle_by_value(probe_source)  # type: ignore[no-untyped-call]
    spark.dataSource.register(probe_source.Probe)

    def made(rows: int = 0) -> Bench:
        return Bench(spark, tmp_path_factory.mktemp("bench"), rows)

    return made


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    """A bench without rows."""
    return make_bench()


@pytest.fixture(scope="session")
def three_batches(make_bench: MakeBench) -> Run:
    """25 rows at 10 a trigger, from the probe into the probe."""
    bench = make_bench(25)
    query = bench.run(bench.sink(bench.stream(perTrigger=10).load()), "some/where")
    return Run(bench, bench.calls(), query)


@pytest.fixture(scope="session")
def replay_of_batch_2(three_batches: Run) -> Run:
    """The same stream, started again when Spark has forgotten that batch 2 ended, and 5 rows have come."""
    bench = three_batches.bench
    bench.forget()
    bench.uncommit(2)
    bench.set_rows(30)
    query = bench.pump(per_trigger=10)
    return Run(bench, bench.calls(), query)


@pytest.fixture(scope="session")
def failed_commit(make_bench: MakeBench) -> Run:
    """A stream of 5 rows whose sink raises in commit, without a traceback."""
    bench = make_bench(5)
    with pytest.raises(StreamingQueryException) as raised:
        bench.pump(failsIn="sink commit", hidesTraceback="true")
    return Run(bench, bench.calls(), error=raised.value)


@pytest.fixture(scope="session")
def replay_of_batch_0(failed_commit: Run) -> Run:
    """The same stream, started again with a sink that works."""
    bench = failed_commit.bench
    bench.forget()
    query = bench.pump()
    return Run(bench, bench.calls(), query)


@pytest.fixture(scope="session")
def idle_then_busy(make_bench: MakeBench) -> Run:
    """A stream that never ends by itself: no rows, then 5, then it is stopped."""
    bench = make_bench(0)
    query = bench.sink(bench.stream().load()).trigger(processingTime="0 seconds").start()
    try:
        bench.wait_for(lambda: len(bench.calls("latestOffset")) > 3)
        bench.set_rows(5)
        bench.wait_for((bench.checkpoint / "commits" / "1").exists)
    finally:
        query.stop()
    bench.wait_for(lambda: bool(bench.calls("stop", "SIGTERM")))
    return Run(bench, bench.calls(), query)
