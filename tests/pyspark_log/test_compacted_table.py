"""The table of a compacted topic has the rows of `scan(latest=True)` for every engine, and deletions lately made."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyspark_log
from pyspark_log_coordinator.audit.verify import verify
from pyspark_log_coordinator.maintenance import topic_cleanup, topic_roll
from pyspark_log_coordinator.topic.machine import AlterConfig
from pyspark_log_storage import layout
from tests.support.plain_log import PlainLog
from tests.support.pyspark_log import typed_frames

deltalake = pytest.importorskip("deltalake")
duckdb = pytest.importorskip("duckdb")
pl = pytest.importorskip("polars")

pytestmark = pytest.mark.deep
COLUMNS = ["partition", "offset", "key", "value"]
COMPACTED = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0, "file_delete_delay_ms": 0}


class TableLog(PlainLog):
    """Topic t of a log in a folder, and its table."""

    @property
    def table(self) -> str:
        return f"{self.path}/{layout.topic_folder('t', self.log.topic('t').topic_id)}"

    def send(self, *rows):
        with pyspark_log.Producer(self.path, {"linger.ms": 1000}) as producer:
            for key, value in rows:
                producer.send("t", value, key=key)

    def maintain(self):
        handle = self.log.topic("t")
        topic_roll.roll_and_merge(handle)
        topic_cleanup.clean_up_topic(handle)

    def latest(self, columns=None):
        found = pyspark_log.scan(self.path, "t", columns=columns or COLUMNS, latest=True)
        return sorted((tuple(row.values()) for each in found for row in each.to_pylist()), key=repr)

    def by_polars(self, columns=None):
        found = pl.scan_delta(self.table).filter(pl.col("value").is_not_null() if columns is None else True)
        return sorted(found.select(columns or COLUMNS).collect().rows(), key=repr)

    def by_delta_rs(self, columns=None):
        builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(self.table))
        names = ", ".join(f'"{each}"' for each in columns or COLUMNS)
        live = "" if columns else "WHERE value IS NOT NULL"
        found = pa.table(builder.execute(f"SELECT {names} FROM t {live}").read_all())
        return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


@pytest.fixture
def log(tmp_path):
    made = TableLog(tmp_path / "log")
    made.create("t", 2, **COMPACTED)
    for number in range(4):
        made.send(*((b"%d" % key, b"%d" % number if key % 5 else None) for key in range(10 * number, 10 * number + 30)))
        made.maintain()
    return made


def test_polars_delta_rs_and_duckdb_read_the_newest_state(log):
    assert len(log.latest()) == 48
    assert log.by_polars() == log.by_delta_rs() == log.latest()
    assert verify(log.log.topic("t")).findings == []
    builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(log.table))
    prices = pa.table(builder.execute("SELECT key, value FROM t WHERE value IS NOT NULL").read_all())
    assert len(prices) == 48
    assert duckdb.sql("SELECT count(*), count(DISTINCT key) FROM prices").fetchall() == [(48, 48)]
    newest = max(pl.scan_delta(log.table).select("offset").collect().to_series())
    found = pl.scan_delta(log.table).filter(pl.col("offset") >= newest).select("offset").collect()
    assert found.rows() == [(newest,)]


TYPED = ["partition", "offset", "id", "name"]


@pytest.fixture
def typed(tmp_path):
    made = TableLog(tmp_path / "log")
    batches = [
        [{"id": key, "name": f"{number}", "gone": key % 7 == number, "off": key % 3 == 0} for key in range(40)]
        for number in range(3)
    ]
    ddl = "id BIGINT, name STRING, gone BOOLEAN, off BOOLEAN"
    typed_frames.write(made.path, ddl, batches[0], schema="columns", num__partitions=2, key__column="id")
    handle = made.log.topic("t")
    settings = {name.replace("_", "."): str(value) for name, value in COMPACTED.items()}
    handle.submit(AlterConfig({"delete.when": "gone", **settings}))
    made.maintain()
    for batch in batches[1:]:
        typed_frames.write(made.path, ddl, batch)
        made.maintain()
    return made


@pytest.mark.parametrize("column", ["gone", "off"])
def test_in_the_table_of_a_typed_topic_a_column_says_which_keys_were_deleted(typed, column):
    handle = typed.log.topic("t")
    handle.submit(AlterConfig({"delete.when": column}))
    topic_cleanup.clean_up_topic(handle)
    found = pl.scan_delta(typed.table).filter(~pl.col(column)).select(TYPED).collect().rows()
    assert sorted(found, key=repr) == typed.latest(TYPED)
    assert len(typed.by_delta_rs(TYPED)) == 40


def test_rows_from_before_the_key_was_a_column_are_no_newest_rows_and_the_others_are(tmp_path):
    made = TableLog(tmp_path / "log")
    typed_frames.write(made.path, "name STRING", [{"name": "old"}] * 2, schema="columns", num__partitions=1)
    rows = [{"name": "a", "id": 1}, {"name": "b", "id": 2}, {"name": "c", "id": 1}]
    typed_frames.write(made.path, "name STRING, id BIGINT", rows, mergeSchema="true")
    settings = {name.replace("_", "."): str(value) for name, value in COMPACTED.items()}
    made.log.topic("t").submit(AlterConfig({"key.column": "id", **settings}))
    made.maintain()
    assert made.latest(["offset", "id", "name"]) == [(3, 2, "b"), (4, 1, "c")]


KEYS = st.sampled_from([b"a", b"b", b"c", b"", b"\0"])
STEPS = st.lists(
    st.one_of(
        st.lists(st.tuples(KEYS, st.sampled_from([b"1", b"2", None])), min_size=1, max_size=5),
        st.just("maintain"),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=25, deadline=None)
@given(steps=STEPS)
def test_after_maintenance_the_table_has_what_a_scan_of_the_newest_rows_has(steps, tmp_path_factory):
    log = TableLog(tmp_path_factory.mktemp("log"))
    log.create("t", 2, **COMPACTED)
    for step in (*steps, [(b"a", b"last")], "maintain"):
        if step == "maintain":
            log.maintain()
        else:
            log.send(*step)
    assert log.by_polars() == log.by_delta_rs() == log.latest()
