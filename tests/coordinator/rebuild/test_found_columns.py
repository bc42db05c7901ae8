"""A typed topic whose description is lost too is rebuilt with the columns of its Parquet segments, or not at all."""

import pyarrow as pa
import pytest

from pyspark_log_coordinator.model.topic_config import parse as config_of
from pyspark_log_coordinator.rebuild import found_columns
from pyspark_log_storage.columns import schema
from pyspark_log_storage.columns.column_ddl import parse
from tests.support.coordinator.lost_cluster import KEEP, LostCluster
from tests.support.coordinator.replicated_topic import ALL
from tests.support.direct import read
from tests.support.pyspark_log.typed_frames import write

OWN = {"topic", "partition", "offset", "timestamp"}
STEPS = [
    ("id INT, at DATE, many ARRAY<INT>", {"id": 1, "at": None, "many": [1, None]}),
    (
        "id BIGINT, at DATE, many ARRAY<INT>, s STRUCT<a: STRING>, m MAP<STRING, SMALLINT>, t TIMESTAMP_NTZ",
        {"id": 2**40, "s": {"a": "x"}, "m": [("k", 1)]},
    ),
    ("id BIGINT", {"id": 3}),
    ("id BIGINT, s STRUCT<a: STRING, b: BINARY>, f FLOAT, b TINYINT", {"id": 4, "s": {"a": "y", "b": b"z"}, "f": 0.5}),
]


class Typed(LostCluster):
    """Topic t, of which each step is a segment."""

    def fill(self, *steps, first="id INT", chunks=0):
        """Write steps, the last `chunks` of them as segments of chunks."""
        self.log.create_topic("t", 1, config_of(KEEP), replicas=[ALL], columns=parse(first))
        for number, (ddl, row) in enumerate(steps):
            write(self.url("0"), ddl, [row, row], mergeSchema="true")
            self.log.open(create=False)
            self.parquet = number < len(steps) - chunks
            self.roll("t")
        return self.rows()

    def rows(self):
        return [{name: row[name] for name in row if name not in OWN} for row in read(self.url("0"), subscribe="t")]

    def lose_descriptions(self):
        for node in ALL:
            (self.folder(node, "t") / "description").unlink(missing_ok=True)


@pytest.fixture
def cluster(tmp_path):
    return Typed(tmp_path)


def test_the_columns_are_those_of_its_parquet_segments(cluster):
    before = cluster.fill(*STEPS)
    newest = cluster.log.topic("t").schemas[-1]
    cluster.lose_journals()
    cluster.lose_descriptions()
    found = cluster.rebuild()
    assert (found.lost, found.left_out) == (0, ())
    assert cluster.log.topic("t").schemas[-1].equals(newest, check_metadata=True)
    assert cluster.rows() == before
    write(cluster.url("0"), "id BIGINT, later STRING", [{"id": 5, "later": "x"}], mergeSchema="true")
    assert cluster.rows()[-1] == {**dict.fromkeys(before[-1]), "id": 5, "later": "x"}


@pytest.mark.parametrize(
    ("steps", "chunks"),
    [
        ([("id INT", {"id": 1})], 1),
        ([("id INT", {"id": 1}), ("id INT, name STRING", {"id": 2})], 1),
        ([("id DECIMAL(5, 2)", {"id": 1}), ("id DECIMAL(5, 2)", {"id": 2})], 1),
    ],
    ids=["chunks alone", "chunks of a newer schema", "chunks of decimals"],
)
def test_a_topic_whose_chunks_nothing_tells_how_to_read_is_left_as_it_is(cluster, steps, chunks):
    cluster.create("u")
    cluster.append("u", 2)
    cluster.roll("u")
    cluster.fill(*steps, first=steps[0][0], chunks=chunks)
    cluster.lose_journals()
    cluster.lose_descriptions()
    [file] = cluster.folder("0", "t").glob("0/*.log")
    found = cluster.rebuild()
    assert [(folder.topic, why) for folder, why in found.left_out] == [("t", found_columns.NONE)]
    assert list(cluster.log.topics()) == ["u"]
    assert file.exists()
    cluster.check()


def test_a_schema_has_the_smallest_columns_of_its_files_and_of_later_ones():
    small, large = (schema.typed(parse(ddl)) for ddl in ("a INT", "a INT, b STRING"))
    other = schema.typed(pa.schema([("z", pa.int8())]))
    schemas_of = found_columns._schemas
    assert schemas_of([({0}, large), ({1}, small), ({3}, large)], 0) == (small, small, large, large)
    assert schemas_of([({0}, small)], 1) == ()
    assert schemas_of([({0}, small), ({1}, other)], 0) == ()
