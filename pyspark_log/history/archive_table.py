"""The Delta table of an archive, and its properties.

    pyspark_log.archive.topic      the topic's name
    pyspark_log.archive.topicId    and its id: a topic that is created again is another one
    pyspark_log.archive.offsets    of each partition the offsets that were found complete: {"0": [5, 120], "1": [0, 98]}
    pyspark_log.archive.epochs     and its leader epoch before these were read: {"0": 3, "1": 0}

The properties are set after the rows were counted. So a table may have rows that they do not name yet; readers leave
these out. The txnVersion of an append is the sum of the ends before it: of two appends after the same rows Delta takes
one, and none that comes late.

Delta casts rows that are appended to a table by its name: 0.5 becomes 0 in a column of integers. By a path it refuses
them. So a column is made wider before rows are appended, and rows are cast only to types that hold all their values.

Everything here is SQL: the Python package of Delta is not needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, NumericType, StructField, StructType, TimestampType

from pyspark_log.source.row import quoted
from pyspark_log_storage.columns.schema_evolution import has_wider
from pyspark_log_storage.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

Extent = tuple[int, int]
"""The first offset of a partition's rows, and the one after the last."""
Change = tuple[str, DataType, DataType]
"""A column or a nested field, in SQL, its type in the table, and the one that its rows need."""

_PREFIX = "pyspark_log.archive."
_WIDENING = "delta.enableTypeWidening"
_NO_TABLE = ("DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST", "PATH_NOT_FOUND")
_NO_TABLE_NAMED = ("TABLE_OR_VIEW_NOT_FOUND", "DELTA_MISSING_TRANSACTION_LOG")


class ArchiveState(NamedTuple):
    """What the properties say."""

    topic: str
    topic_id: str
    offsets: Mapping[int, Extent]
    epochs: Mapping[int, int]
    """The leader epoch of each partition before its rows were read."""


class ArchiveTable(NamedTuple):
    """A table at a path or address, or of a name in the catalog."""

    spark: SparkSession
    name: str

    @property
    def identifier(self) -> str:
        """The table in SQL."""
        return f"delta.{quoted(self.name)}" if self._is_path else self.name

    @property
    def _is_path(self) -> bool:
        return "/" in self.name

    def state(self) -> ArchiveState | None:
        """Return what its properties say; None if there is no table. Raises `InvalidInput` if it is no archive."""
        if not self.name.strip():
            raise InvalidInput("table is empty; give the path or the name of a Delta table")
        try:
            detail = self.spark.sql(f"DESCRIBE DETAIL {self.identifier}").head()
        except AnalysisException as error:
            condition = error.getCondition() or ""
            if condition.startswith((*_NO_TABLE, *_NO_TABLE_NAMED)):
                return None
            known = {"DATA_SOURCE_NOT_FOUND", "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE"}
            if isinstance(error, ParseException) or condition in known or "delta" in condition.lower():
                raise InvalidInput(f"table {self.name!r}: {_first_line(error)}") from None
            raise
        assert detail is not None
        if detail["format"] != "delta":
            raise InvalidInput(f"{self.name} is a table of format {detail['format']}; an archive is a Delta table")
        found = {key.removeprefix(_PREFIX): each for key, each in detail["properties"].items()}
        try:
            offsets = msgspec.json.decode(found["offsets"], type=dict[int, Extent])
            epochs = msgspec.json.decode(found["epochs"], type=dict[int, int])
            return ArchiveState(found["topic"], found["topicId"], offsets, epochs)
        except (KeyError, msgspec.MsgspecError):
            raise InvalidInput(
                f"{self.name} is no archive of a topic: it lacks properties of one; name a table that does not exist"
            ) from None

    def version(self) -> int:
        """Return the number of its newest version."""
        found = self.spark.sql(f"DESCRIBE HISTORY {self.identifier} LIMIT 1").select("version").head()
        assert found is not None
        return int(found[0])

    def rows(self, version: int) -> DataFrame:
        """Return its rows as of a version."""
        read = self.spark.read.format("delta").option("versionAsOf", version)
        return read.load(self.name) if self._is_path else read.table(self.name)

    def create(
        self, empty: DataFrame, state: ArchiveState, partition_by: Sequence[str], cluster_by: Sequence[str]
    ) -> None:
        """Create the table, with the columns of a frame."""
        layout = f"PARTITIONED BY ({_names(partition_by)})" if partition_by else ""
        layout = f"CLUSTER BY ({_names(cluster_by)})" if cluster_by else layout
        columns = ", ".join(f"{_names([each.name])} {_ddl(each.dataType)}" for each in empty.schema)
        self.spark.sql(
            f"CREATE TABLE {self.identifier} ({columns}) USING delta {layout} TBLPROPERTIES ({_properties(state)})"
        )

    def append(self, frame: DataFrame, state: ArchiveState) -> None:
        """Append rows that follow those of `state`, unless others were appended to these meanwhile.

        Columns that are too narrow are made wider first. Raises `InvalidInput` if the table does not allow that.
        """
        after = sum(end for _, end in state.offsets.values())
        writer = self._held(frame).write.format("delta").mode("append").option("mergeSchema", "true")
        writer = writer.option("txnAppId", f"pyspark_log {state.topic_id}").option("txnVersion", after)
        if self._is_path:
            writer.save(self.name)
        else:
            writer.saveAsTable(self.name)

    def _held(self, frame: DataFrame) -> DataFrame:
        """Return rows as the table holds them, after its columns were made as wide as these. Raises `InvalidInput`."""
        stored = self.rows(self.version()).schema
        changes: list[Change] = []
        held = _wider(stored, frame.schema, "", changes)
        assert isinstance(held, StructType)
        for path, narrow, wide in changes:
            properties = self.spark.sql(f"DESCRIBE DETAIL {self.identifier}").select("properties").head()
            assert properties is not None
            where = f"table {self.name}: column {path} is {narrow.simpleString()}, and the rows have {_ddl(wide)}"
            if properties[0].get(_WIDENING) != "true":
                raise InvalidInput(
                    f"{where}. Let it become wider: ALTER TABLE {self.identifier} SET TBLPROPERTIES ('{_WIDENING}' = "
                    "'true'); or archive into another table"
                )
            try:
                self.spark.sql(f"ALTER TABLE {self.identifier} ALTER COLUMN {path} TYPE {_ddl(wide)}")
            except PySparkException as error:
                raise InvalidInput(f"{where}: {_first_line(error)}; archive into another table") from None
        return frame.to(held.toNullable())

    def record(self, state: ArchiveState) -> None:
        """Set the properties."""
        self.spark.sql(f"ALTER TABLE {self.identifier} SET TBLPROPERTIES ({_properties(state)})")


def _names(names: Sequence[str]) -> str:
    return ", ".join(quoted(name) for name in names)


def _ddl(kind: DataType) -> str:
    """Return a type in SQL, with quoted names of fields."""
    match kind:
        case StructType():
            return f"STRUCT<{', '.join(f'{_names([each.name])}: {_ddl(each.dataType)}' for each in kind)}>"
        case ArrayType():
            return f"ARRAY<{_ddl(kind.elementType)}>"
        case MapType():
            return f"MAP<{_ddl(kind.keyType)}, {_ddl(kind.valueType)}>"
        case TimestampType():
            return "timestamp_ltz"  # what `timestamp` means depends on spark.sql.timestampType
        case _:
            return kind.simpleString()


def _properties(state: ArchiveState) -> str:
    offsets, epochs = (msgspec.json.encode(each).decode() for each in (state.offsets, state.epochs))
    found = {"topic": state.topic, "topicId": state.topic_id, "offsets": offsets, "epochs": epochs}
    return ", ".join(f"'{_PREFIX}{name}' = '{text}'" for name, text in found.items())


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0][:500]


def _wider(stored: DataType, rows: DataType, path: str, changes: list[Change]) -> DataType:
    """Return the type of `rows`, in which each column has the table's type if that is the wider one.

    Adds to `changes` what the table has to change for it; `path` is where the types are, in SQL.
    """
    match stored, rows:
        case StructType(), StructType():
            known, fields = {each.name.lower(): each.dataType for each in stored}, []
            for each in rows:
                kind = each.dataType
                if (old := known.get(each.name.lower())) is not None:
                    where = f"{path}.{quoted(each.name)}" if path else quoted(each.name)
                    kind = _wider(old, kind, where, changes)
                fields.append(StructField(each.name, kind))
            return StructType(fields)
        case ArrayType(), ArrayType():
            return ArrayType(_wider(stored.elementType, rows.elementType, f"{path}.element", changes))
        case MapType(), MapType():
            key = _wider(stored.keyType, rows.keyType, f"{path}.key", changes)
            return MapType(key, _wider(stored.valueType, rows.valueType, f"{path}.value", changes))
    numbers = isinstance(stored, NumericType) and isinstance(rows, NumericType)
    if numbers and has_wider(to_arrow_type(rows), to_arrow_type(stored)):
        return stored
    if stored != rows:
        changes.append((path, stored, rows))
    return rows
